"""Judges single starts and promises against all that is held and promised, which is kept by what changes: in time for one alone.

Part of the checker, by its own arithmetic, with dictionaries and plain sums. A complete round is judged as a whole (check). What is
decided of few jobs alone is judged here before it is done: on the nodes that it names by the same rules, and for its queues by sums
that follow each change. Starts of a complete round are judged so once more when they are done, since others may have come between.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from solver.checker.case import Charge, JudgedPlan, NodeIndex
from solver.checker.check import place_violations
from solver.checker.dues import InsideLedger, guaranteed_lines
from solver.checker.entry import is_firm
from solver.checker.eviction_check import JudgedNomination, RunningJobs
from solver.checker.lending import lent_at_most, weight
from solver.checker.policy_index import PolicyIndex
from solver.model.cluster import GpuType, NodeName
from solver.model.inflight import Intent, Reservation
from solver.model.quantities import Instant, MilliGpu
from solver.model.snapshot import Snapshot, foreseen
from solver.model.snapshot_patch import SnapshotPatch, patched
from solver.model.workload import Job, JobName, TaskPlacement
from solver.plan.plan import Bind, Certificate, Evict, Nominate, Plan, Repartition, Step
from solver.plan.violation import Violation
from solver.policy.policy import Policy
from solver.policy.tree import QuotaLine
from solver.policy.windows import policy_at

Tasks = tuple[TaskPlacement, ...]
Resource = Literal["cpu", "memory"]
Sign = Literal[1, -1]


@dataclass(slots=True)
class HeldByQueues:
    """What queues, and users in them, hold or were promised: sums that follow each job. `own`: of each queue by itself."""

    lookup: PolicyIndex
    guaranteed: Mapping[QuotaLine, int]
    own: Counter[tuple[str, GpuType]] = field(default_factory=Counter)
    lines: Counter[QuotaLine] = field(default_factory=Counter)
    by_user: Counter[tuple[str, GpuType, str]] = field(default_factory=Counter)
    host: Counter[tuple[str, str]] = field(default_factory=Counter)
    host_by_user: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    firm: InsideLedger = field(init=False)
    inside: InsideLedger = field(init=False)

    def __post_init__(self) -> None:
        self.inside = InsideLedger(self.lookup, self.guaranteed)
        self.firm = InsideLedger(self.lookup, self.guaranteed)

    def add(self, job: Job, charge: Charge, tasks: Iterable[TaskPlacement], sign: Sign) -> None:
        """A job has this too, or no longer (`sign` -1)."""
        path, known = self.lookup.path(job.spec.queue), self.lookup.class_of(job)
        for gpu_type, milli in charge.items():
            self.own[job.spec.queue, gpu_type] += sign * milli
            self.inside.add(job.spec.queue, gpu_type, sign * milli)
            for queue in path:
                self.lines[QuotaLine(queue.name, gpu_type)] += sign * milli
                self.by_user[queue.name, gpu_type, job.user] += sign * milli
            if known is not None and not known.preemptible:
                self.firm.add(job.spec.queue, gpu_type, sign * milli)
        for resource, amount in _beside(job, tasks).items():
            for queue in path:
                self.host[queue.name, resource] += sign * amount
                self.host_by_user[queue.name, resource, job.user] += sign * amount

    def above(self, job: Job, charge: Charge, tasks: Iterable[TaskPlacement]) -> Iterator[Violation]:
        """Every limit that a job would break with this, beside all that is held."""
        for queue in self.lookup.path(job.spec.queue):
            for gpu_type, milli in charge.items():
                entry = queue.quota_for(gpu_type)
                if entry is None or not milli:
                    continue
                held, mine = self.lines[QuotaLine(queue.name, gpu_type)], self.by_user[queue.name, gpu_type, job.user]
                if entry.max is not None and held + milli > entry.max:
                    told = f"{MilliGpu(held)} + {MilliGpu(milli)} {gpu_type} is above max {entry.max}"
                    yield Violation("S3", queue.name, told)
                if entry.per_user is not None and mine + milli > entry.per_user:
                    told = f"{MilliGpu(mine)} + {MilliGpu(milli)} {gpu_type} of user {job.user or '(none)'}"
                    yield Violation("S3", queue.name, f"{told} is above perUser {entry.per_user}")
            for resource, amount in _beside(job, tasks).items():
                limit = queue.host_quota_for(resource)
                held = self.host[queue.name, resource]
                if amount and limit is not None and limit.max is not None and held + amount > limit.max:
                    yield Violation("S3", queue.name, f"{held} + {amount} of {resource} is above max {limit.max}")
                mine = self.host_by_user[queue.name, resource, job.user]
                if amount and limit is not None and limit.per_user is not None and mine + amount > limit.per_user:
                    told = f"{mine} + {amount} of {resource} of user {job.user or '(none)'}"
                    yield Violation("S3", queue.name, f"{told} is above perUser {limit.per_user}")
        yield from self._beyond_guarantee(job, charge)

    def _beyond_guarantee(self, job: Job, charge: Charge) -> Iterator[Violation]:
        if not is_firm(self.lookup, job):
            return
        for gpu_type, milli in charge.items():
            for line in self.lookup.lines(job.spec.queue, gpu_type):
                left = self.firm.left(line)
                if milli > left:
                    told = f"{MilliGpu(milli)} {gpu_type} start that may not be lent, {MilliGpu(left)} are left"
                    yield Violation("S14", line.queue, f"{told} of its guarantee")


def _beside(job: Job, tasks: Iterable[TaskPlacement]) -> dict[Resource, int]:
    """CPU and memory of tasks."""
    shapes = {group.name: group.shape for group in job.spec.task_groups}
    known = [shapes[task.group] for task in tasks if task.group in shapes]
    return {"cpu": sum(int(shape.cpu) for shape in known), "memory": sum(int(shape.memory) for shape in known)}


class LedgerCheck:
    """All that is held and promised, and what a start or a promise would break beside it. Mutable: it changes as the world does.

    What is done between two snapshots is held beside (`hold`, `ask`, `end`), until a snapshot is known to show it (`change`).
    """

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        self._policy = policy
        self._since = dict[JobName, Job]()
        self._ended = dict[JobName, int]()
        self._kept = dict[JobName, int]()
        self._asked_since = defaultdict[JobName, list[Intent]](list)
        self._begin(snapshot)

    def _begin(self, snapshot: Snapshot) -> None:
        self._running: RunningJobs | None = None
        self._world, self._ground = snapshot, NodeIndex(snapshot.nodes)
        self._lookup = PolicyIndex(policy_at(self._policy, snapshot.time))
        self._queues = HeldByQueues(self._lookup, guaranteed_lines(self._lookup, self._ground.capacity))
        self._shown = {job.name: job for job in snapshot.jobs}
        self._asked = defaultdict[JobName, list[Intent]](list)
        for intent in snapshot.in_flight.intents:
            self._asked[intent.job].append(intent)
        self._on = defaultdict[NodeName, set[JobName]](set)
        self._reserved = defaultdict[NodeName, list[Reservation]](list)
        for held in snapshot.in_flight.reservations:
            for name in {task.node for task in held.tasks}:
                self._reserved[name].append(held)
        self._count({*self._shown, *self._since}, 1)

    def _forget_but(self, unseen: Collection[JobName]) -> None:
        """What was done since shows from now on, but for jobs `unseen`."""
        self._since = {name: job for name, job in self._since.items() if name in unseen}
        self._ended = {name: attempt for name, attempt in self._ended.items() if name in unseen}
        self._kept = {name: attempt for name, attempt in self._kept.items() if name in unseen}
        for name in self._asked_since.keys() - set(unseen):
            del self._asked_since[name]

    def change(self, patch: SnapshotPatch, unseen: Collection[JobName] = ()) -> None:
        """The world has become another, in which all that was held beside shows, as far as it lasts, but for jobs `unseen`.

        Where nodes change, or what is kept of them, all is counted anew.
        """
        world = patched(self._world, patch)
        if patch.nodes or patch.gone_nodes or world.in_flight.reservations != self._world.in_flight.reservations:
            self._forget_but(unseen)
            self._begin(world)
            return
        asked_anew = {*patch.gone_intents, *(intent.id for intent in patch.intents)}
        before = [intent for intent in self._world.in_flight.intents if intent.id in asked_anew]
        touched = {intent.job for intent in (*patch.intents, *before)} | {job.name for job in patch.jobs}
        touched |= {*patch.gone_jobs, *self._since, *self._asked_since}
        self._count(touched, -1)
        self._forget_but(unseen)
        for intent in before:
            self._asked[intent.job].remove(intent)
        for intent in patch.intents:
            self._asked[intent.job].append(intent)
        for name in patch.gone_jobs:
            del self._shown[name]
        self._shown |= {job.name: job for job in patch.jobs}
        self._count(touched, 1)
        self._world, self._running = world, None

    def hold(self, job: Job, attempt: int, tasks: Tasks) -> None:
        """A job has been given these, or promised them."""
        if (shown := self._shown.get(job.name)) and shown.phase == "running":
            self._running = None
        self._count((job.name,), -1)
        self._kept[job.name] = attempt
        self._since[job.name] = msgspec.structs.replace(job, phase="starting", attempt=attempt, placement=tasks)
        self._count((job.name,), 1)

    def end(self, name: JobName, attempt: int) -> None:
        """A job holds nothing any more of what it had in an attempt, nor is anything asked of it but what it was promised."""
        job = self._job(name)
        if job is None or job.attempt > attempt or not job.placement:
            return
        if self._running is not None and not self._running.is_behind_all(job):
            self._running = None
        self._count((name,), -1)
        self._ended[name] = job.attempt
        self._since[name] = msgspec.structs.replace(job, phase="pending", placement=())
        self._count((name,), 1)

    def ask(self, intent: Intent) -> None:
        """A job has been asked to stop, to shrink, or to go on elsewhere, where it is promised something."""
        job = self._job(intent.job)
        if self._running is not None and not self._running.is_behind_all(job):
            self._running = None
        self._count((intent.job,), -1)
        self._asked_since[intent.job].append(intent)
        self._count((intent.job,), 1)

    @contextmanager
    def leaving(self, jobs: Iterable[JobName]) -> Iterator[None]:
        """Inside, these have been asked to leave: they are charged for nothing, and still where they are."""
        away = frozenset(jobs)
        self._charge(away, -1)
        try:
            yield
        finally:
            self._charge(away, 1)

    def refused(self, step: Bind, job: Job, now: Instant, made: Iterable[Repartition] = ()) -> tuple[Violation, ...]:
        """What a job that waits would break if it started so now; () where it may. `made`: GPUs that are partitioned for it."""
        self._charge((job.name,), -1)
        try:
            return tuple(self._found(step, job, now, made))
        finally:
            self._charge((job.name,), 1)

    def refused_promise(
        self, step: Nominate, evictions: Sequence[Evict], job: Job, now: Instant
    ) -> tuple[Violation, ...]:
        """What a job that waits would break if it were promised this now, for which others leave; () where it may."""
        found = list[Violation]()
        if self._intents(job.name) or job.name in self._since:
            found.append(Violation("S11", job.name, "has been promised something before"))
        self._charge((job.name,), -1)
        try:
            with self.leaving(eviction.job for eviction in evictions):
                found += self._found(step, job, now, evictions)
            if not self._strange_nodes(step):
                found += self._nomination(step, evictions, job, now).findings()
        finally:
            self._charge((job.name,), 1)
        return tuple(found)

    def beyond_limits(self, job: Job, tasks: Tasks) -> tuple[Violation, ...]:
        """The limits that a job would break if it had these, wherever they are."""
        self._charge((job.name,), -1)
        try:
            charge = self._ground.charge(tasks)
            return (*self._queues.above(job, charge, tasks), *self._not_lent(job, charge))
        finally:
            self._charge((job.name,), 1)

    def know_running(self) -> RunningJobs:
        """How those that run stand towards guarantees: worked out once, until that may have changed."""
        if self._running is None:
            self._running = self._running_now()
        return self._running

    def _nomination(self, step: Nominate, evictions: Sequence[Evict], job: Job, now: Instant) -> JudgedNomination:
        running = self.know_running()
        victims = {one.job: known for one in evictions if (known := self._job(one.job)) is not None}
        asked = {name for name in victims if self._intents(name) or name in self._since}
        case = self._case(step, job, now, evictions)
        lookup, inside = self._lookup, self._queues.inside
        return JudgedNomination(job, step, evictions, case, lookup, running, victims, asked, inside, now)

    def _running_now(self) -> RunningJobs:
        world = self._world
        running = tuple(job for job in world.jobs if job.phase == "running" and job.name not in self._ended)
        return RunningJobs.of(
            msgspec.structs.replace(world, jobs=running), self._lookup, {*self._since, *self._asked_since}
        )

    def _found(
        self, step: Bind | Nominate, job: Job, now: Instant, made: Iterable[Repartition | Evict]
    ) -> Iterator[Violation]:
        strange = self._strange_nodes(step)
        if strange:
            yield Violation("S1", job.name, f"is on unknown node {strange[0]}")
            return
        case = self._case(step, job, now, made)
        yield from place_violations(case)
        charge = case.given(step)
        yield from self._queues.above(job, charge, step.tasks)
        yield from self._not_lent(job, charge)

    def _strange_nodes(self, step: Bind | Nominate) -> Sequence[NodeName]:
        return sorted({task.node for task in step.tasks} - self._ground.by_name.keys())

    def _case(self, step: Bind | Nominate, job: Job, now: Instant, made: Iterable[Repartition | Evict]) -> JudgedPlan:
        """The nodes of a start or a promise, all that is on them, and all that is kept there."""
        kept = {held.holder: held for task in step.tasks for held in self._reserved.get(task.node, ())}
        tasks = (*step.tasks, *(task for held in kept.values() for task in held.tasks))
        nodes = {task.node for task in tasks} & self._ground.by_name.keys()
        there = {name for node in nodes for name in self._on.get(node, ())} | kept.keys()
        jobs = {name: known for name in there if (known := self._job(name))} | {job.name: job}
        sets = {group.nodes for known in jobs.values() for group in known.spec.task_groups if group.nodes}
        in_flight = msgspec.structs.replace(
            self._world.in_flight,
            intents=tuple(sorted((i for name in jobs for i in self._intents(name)), key=lambda i: i.id)),
            reservations=tuple(sorted(kept.values(), key=lambda held: held.holder)),
            repartitions=tuple(asked for asked in self._world.in_flight.repartitions if asked.node in nodes),
        )
        world = foreseen(
            Snapshot(
                now,
                tuple(self._ground.by_name[name] for name in sorted(nodes)),
                tuple(jobs[name] for name in sorted(jobs)),
                in_flight,
                tuple(known for known in self._world.node_sets if known.name in sets),
            )
        )
        before = (one for one in made if (one.job in jobs if isinstance(one, Evict) else one.node in nodes))
        steps: tuple[Step, ...] = (*before, step)
        plan = Plan("", "", steps, (), Certificate("none", (), 0.0, "", 0))
        return JudgedPlan(world, plan, NodeIndex(world.nodes), self._lookup)

    def _not_lent(self, job: Job, charge: Charge) -> Iterator[Violation]:
        lookup, queues = self._lookup, self._queues
        for gpu_type in sorted(lookup.lent_in_part & charge.keys()):
            if not weight(lookup, queues.guaranteed, gpu_type, {}):
                continue
            after = Counter(queues.own)
            after[job.spec.queue, gpu_type] += charge[gpu_type]
            before, now = (weight(lookup, queues.guaranteed, gpu_type, use) for use in (queues.own, after))
            known = (self._job(name) for name in {*self._shown, *self._since})
            held = (task for one in known if one and not self._was_sent_back(one) for task in one.placement)
            there = lent_at_most(self._world.nodes, gpu_type, held)
            if now > max(before, there):
                told = f"{MilliGpu(now)} {gpu_type} are in use or kept back, {MilliGpu(before)} without it"
                yield Violation("S3", gpu_type, f"{told}; there are {MilliGpu(there)}")

    def _job(self, name: JobName) -> Job | None:
        return self._since.get(name) or self._shown.get(name)

    def _intents(self, name: JobName) -> Sequence[Intent]:
        """What was asked of a job, as far as it is not over."""
        known: Sequence[Intent] = self._asked.get(name, ())
        if name in self._asked_since:
            known = (*known, *self._asked_since[name])
        if name in self._ended or name in self._kept:
            # What was asked of an attempt is over with it, and a promise once it is kept.
            ended, kept = self._ended.get(name, 0), self._kept.get(name, 0)
            return [one for one in known if one.attempt > (kept if one.kind == "nominate" else ended)]
        return known

    def _was_sent_back(self, job: Job) -> bool:
        return any(intent.evicts for intent in self._intents(job.name))

    def _count(self, names: Iterable[JobName], sign: Sign) -> None:
        """These jobs are where they are, and are charged for it; or no longer."""
        for name in names:
            job = self._job(name)
            asked = self._intents(name)
            for tasks in (job.placement if job else (), *(intent.tasks for intent in asked)):
                for task in tasks:
                    self._on[task.node].add(name) if sign > 0 else self._on[task.node].discard(name)
        self._charge(names, sign)

    def _charge(self, names: Iterable[JobName], sign: Sign) -> None:
        for name in names:
            job = self._job(name)
            tasks = self._counted(job, self._intents(name)) if job else ()
            if job and tasks:
                self._queues.add(job, self._ground.charge(tasks), tasks, sign)

    def _counted(self, job: Job, asked: Iterable[Intent]) -> Tasks:
        """What a job is charged for: not what it was asked to leave, but what it was promised."""
        if job.placement and not self._was_sent_back(job):
            return job.placement
        return next((intent.tasks for intent in asked if intent.kind == "nominate"), ())
