"""Judges evictions and promises: S4 who may be evicted for whom, S8 for whose sake, S9 not too soon, too often or too many.

Part of the checker, and as slow and obvious. It needs every job and node that the plan names to be in the snapshot.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from solver.plan.check_entry import path_of
from solver.plan.check_moves import moving
from solver.plan.check_parts import Parted, parted
from solver.plan.check_pledges import unmade
from solver.plan.check_turns import gives_way
from solver.plan.plan import Evict, Nominate, Plan, Shrink, Yields
from solver.plan.violation import Violation
from solver.rules.entitlement import gpus_by_type, guarantees
from solver.rules.policy import Policy, PriorityClass
from solver.rules.tree import Line, QueueTree
from solver.world.cluster import GpuType
from solver.world.parts import owner_of
from solver.world.quantities import MilliGpu
from solver.world.snapshot import Snapshot
from solver.world.workload import Job, JobName, QueueName, TaskPlacement

_DAY_MS = 86_400_000


def eviction_violations(snapshot: Snapshot, policy: Policy, plan: Plan) -> Iterable[Violation]:
    """Every eviction that is not lawful, and every promise that can't come true."""
    yield from _Evictions(snapshot, policy, plan).findings()


@dataclass(slots=True)
class _Evictions:
    """The evictions of one plan before the rules."""

    snapshot: Snapshot
    policy: Policy
    plan: Plan
    parted: Parted = field(init=False)
    steps: dict[JobName, Evict | Shrink] = field(init=False)
    promises: dict[JobName, Nominate] = field(init=False)
    type_of: dict[str, GpuType] = field(init=False)
    guaranteed: dict[Line, int] = field(init=False)
    _known_inside: dict[JobName, bool] = field(default_factory=dict)
    _in_line: dict[tuple[QueueName, GpuType], dict[JobName, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.parted = parted(self.snapshot, self.policy, self.plan)
        # Who moves, and where to, is for check_moves.
        steps = self.parted.steps.items()
        self.steps = {name: s for name, s in steps if s.beneficiary is not None and s.means != "move"}
        self.promises = {step.job: step for step in self.plan.steps if isinstance(step, Nominate)}
        self.type_of = {node.name: node.gpu_type for node in self.snapshot.nodes}
        self.guaranteed = guarantees(QueueTree.of(self.policy), gpus_by_type(self.snapshot))

    def findings(self) -> Iterator[Violation]:
        """Every rule for every eviction."""
        asked = {i.job for i in self.snapshot.in_flight.intents if i.kind in ("stop", "shrink")}
        for name, step in self.steps.items():
            job = self.jobs[name]
            if job.phase != "running" or job.attempt != step.attempt or step.job in asked:
                yield Violation("S11", job.name, f"is evicted in attempt {step.attempt} while {job.phase}")
            elif step.beneficiary is None or step.beneficiary not in self.promises or step.beneficiary not in self.jobs:
                yield Violation("S8", job.name, f"is evicted for {step.beneficiary}, which is promised nothing")
            else:
                yield from self._one(job, self.jobs[step.beneficiary])
        yield from self._means()
        yield from self._drained_for()
        yield from self._limits()
        yield from self._verdicts()

    @property
    def jobs(self) -> Mapping[JobName, Job]:
        """Live jobs, in parts."""
        return self.parted.jobs

    def _one(self, victim: Job, taker: Job) -> Iterator[Violation]:
        nodes = {task.node for task in self.promises[taker.name].tasks}
        if not self._frees_quota(victim, taker) and not any(task.node in nodes for task in victim.placement):
            yield Violation("S8", victim.name, f"is evicted for {taker.name} and frees nothing that it uses")
        problem = self._unlawful(victim, taker)
        if problem:
            yield Violation("S4", victim.name, problem)
        problem = "" if self._overdue(taker) and self._by(victim, taker) != "turn" else self._too_soon(victim)
        if problem:
            yield Violation("S9", victim.name, problem)

    def _frees_quota(self, victim: Job, taker: Job) -> bool:
        """Whether a limit binds both: that of their own queue, a max above them, or what others lend."""
        shared = {queue.name for queue in path_of(self.policy, victim.spec.queue)}
        above = [queue for queue in path_of(self.policy, taker.spec.queue) if queue.name in shared]
        return (
            victim.spec.queue == taker.spec.queue
            or any(entry.max is not None for queue in above for entry in queue.quota)
            or self._frees_what_may_be_lent(victim)
        )

    def _frees_what_may_be_lent(self, victim: Job) -> bool:
        """Whether somebody does not lend all its GPUs of a type that the victim holds: then it leaves more of the rest."""
        entries = [entry for queue in self.policy.queues for entry in queue.quota if entry.lendable is not None]
        return any(self._gpus(victim)[entry.gpu_type] for entry in entries)

    def _unlawful(self, victim: Job, taker: Job) -> str:
        mine, theirs = self._class(victim), self._class(taker)
        if victim.spec.queue == taker.spec.queue:
            if mine.preemptible and mine.value == theirs.value:
                whole = next(job for job in self.snapshot.jobs if job.name == self.steps[victim.name].job)
                return gives_way(whole, taker, self.snapshot, self.policy)
            if not mine.preemptible or mine.value >= theirs.value:
                return f"is not preemptible by {taker.name}: priority {mine.value} against {theirs.value}"
            return ""
        if not mine.preemptible and not mine.may_borrow:
            return "is not preemptible"
        if not self._inside(taker) and self._reclaim_mode(taker) == "guaranteed":
            return f"is evicted for {taker.name}, which is not inside its guarantee"
        worst = self._standing(victim, taker)
        if worst == "inside":
            return f"is inside the guarantee of {victim.spec.queue} towards {taker.spec.queue}"
        if worst == "straddles" and not self._inside(taker):
            return f"crosses a guarantee's line, and {taker.name} is not inside its own guarantee"
        return ""

    def _drained_for(self) -> Iterator[Violation]:
        """S4: GPUs are emptied, to be partitioned anew, for nobody but guarantees."""
        for name, step in self.promises.items():
            if unmade(self.snapshot, step.tasks) and name in self.jobs and not self._inside(self.jobs[name]):
                yield Violation(
                    "S4", name, "is promised a GPU that is to be partitioned, and is not inside its guarantee"
                )

    def _means(self) -> Iterator[Violation]:
        """S4: every step says by what means it is lawful: the most harmful of its parts'."""
        needed: dict[JobName, set[str]] = defaultdict(set)
        for name, step in self.steps.items():
            taker = self.jobs.get(step.beneficiary) if step.beneficiary else None
            if taker is not None:
                needed[step.job].add(self._by(self.jobs[name], taker))
        for step in dict.fromkeys(self.steps.values()):
            expected = next(
                (means for means in ("straddle", "turn", "preempt", "reclaim") if means in needed[step.job]), ""
            )
            if expected and step.means != expected:
                yield Violation("S4", step.job, f"is taken by {step.means}, which should be {expected}")

    def _by(self, victim: Job, taker: Job) -> str:
        if victim.spec.queue == taker.spec.queue:
            return "turn" if self._class(victim).value == self._class(taker).value else "preempt"
        return "straddle" if self._standing(victim, taker) == "straddles" else "reclaim"

    def _standing(self, victim: Job, taker: Job) -> str:
        shared = {queue.name for queue in path_of(self.policy, taker.spec.queue)}
        lines = [queue.name for queue in path_of(self.policy, victim.spec.queue) if queue.name not in shared]
        found = {self._stands(victim, queue, gpu_type) for queue in lines for gpu_type in self._gpus(victim)}
        return next((worst for worst in ("inside", "straddles") if worst in found), "borrowed")

    def _stands(self, victim: Job, queue: QueueName, gpu_type: GpuType) -> str:
        """Inside, straddling or borrowed."""
        if (queue, gpu_type) not in self._in_line:
            self._in_line[queue, gpu_type] = dict(self._line(queue, gpu_type))
        return self._in_line[queue, gpu_type].get(victim.name, "borrowed")

    def _line(self, queue: QueueName, gpu_type: GpuType) -> Iterator[tuple[JobName, str]]:
        """Where each stands by the place in line of all that run below a queue and hold the type."""
        below = [
            job
            for job in self._running()
            if self._gpus(job)[gpu_type] and queue in {known.name for known in path_of(self.policy, job.spec.queue)}
        ]
        below.sort(key=lambda job: (self._rank_below(job, queue, gpu_type), self._place_in_line(job)))
        left = self.guaranteed.get(Line(queue, gpu_type), 0)
        for job in below:
            gpus, whole = self._gpus(job)[gpu_type], not self._class(job).preemptible
            fits, crosses = gpus <= left, 0 < left < gpus
            yield job.name, "inside" if fits else "straddles" if crosses and not whole else "borrowed"
            left -= gpus if fits or not whole else 0

    def _rank_below(self, job: Job, queue: QueueName, gpu_type: GpuType) -> int:
        """Who lies inside the guarantee of the next queue on its way down comes before whoever does not."""
        path = [known.name for known in path_of(self.policy, job.spec.queue)]
        at = path.index(queue)
        return ("inside", "straddles", "borrowed").index(self._stands(job, path[at - 1], gpu_type)) if at else 0

    def _place_in_line(self, job: Job) -> tuple[bool, int, int, str, str]:
        known = self._class(job)
        return known.preemptible, -known.value, job.started_at or 0, owner_of(job.name), job.name

    def _running(self) -> list[Job]:
        """Who stands in line. A gang that shrinks already stands as what it will be."""
        stopping = {intent.job for intent in self.snapshot.in_flight.intents if intent.kind == "stop"}
        return [job for job in self.jobs.values() if job.phase == "running" and job.name not in stopping]

    def _inside(self, taker: Job) -> bool:
        if taker.name not in self._known_inside:
            self._known_inside[taker.name] = self._lies_inside(taker)
        return self._known_inside[taker.name]

    def _lies_inside(self, taker: Job) -> bool:
        """Whether all that a taker is promised fits in its queue's guarantee, once those evicted from the queue have left."""
        queue, wanted = taker.spec.queue, self._gpus_of_tasks(taker.name)
        moved = moving(self.plan)
        evicted = {name for name in self.parted.leaving if owner_of(name) not in moved}
        promised = {intent.job: intent.tasks for intent in self.snapshot.in_flight.intents if intent.kind == "nominate"}
        leaving = {intent.job for intent in self.snapshot.in_flight.intents if intent.evicts}
        held: Counter[GpuType] = Counter()
        for job in self.jobs.values():
            if job.spec.queue == queue:
                goes_on = job.phase != "pending" and job.name not in evicted | leaving
                held.update(self._count(job.placement if goes_on else promised.get(job.name, ())))
        return all(
            held[gpu_type] + gpus <= self.guaranteed.get(Line(queue, gpu_type), 0) for gpu_type, gpus in wanted.items()
        )

    def _too_soon(self, victim: Job) -> str:
        protection, now = self._class(victim).protection, self.snapshot.time
        if victim.started_at is None or now - victim.started_at < protection.min_runtime:
            return f"has not run for {protection.min_runtime} yet"
        lately = [at for at in victim.evicted_at if now - at < _DAY_MS]
        if protection.evictions_per_day is not None and len(lately) >= protection.evictions_per_day:
            return f"was evicted {len(lately)} times within a day"
        if victim.evicted_at and now - victim.evicted_at[-1] < protection.cool_down:
            return f"was evicted less than {protection.cool_down} ago"
        return ""

    def _limits(self) -> Iterator[Violation]:
        limits = self.policy.scheduling.evictions
        bounded = {
            name: taker
            for name, step in self.steps.items()
            if (taker := step.beneficiary) in self.jobs and taker and not self._overdue(self.jobs[taker])
        }
        # What an overdue guarantee takes may come on top of what the others, and who moves, have to keep to.
        overdue = {step.job for name, step in self.steps.items() if name not in bounded}
        evicted = len({owner_of(name) for name in self.parted.leaving} - overdue)
        if limits.per_round is not None and (bounded or moving(self.plan)) and evicted > limits.per_round:
            yield Violation("S9", "round", f"{evicted} evictions; at most {limits.per_round} in a round")
        for taker in sorted(set(bounded.values())):
            gained = MilliGpu(sum(self._gpus_of_tasks(taker).values()))
            named = {name for name, other in bounded.items() if other == taker}
            leaving = named | {name for name in self.parted.along if owner_of(name) in named}
            lost = MilliGpu(sum(sum(self._gpus(self.jobs[name]).values()) for name in leaving))
            if gained < limits.min_gain * lost:
                yield Violation("S9", taker, f"gains {gained} GPUs for {lost}; minGain is {limits.min_gain}")

    def _verdicts(self) -> Iterator[Violation]:
        evicted = {step.job for step in self.steps.values()}
        yielding = {verdict.job for verdict in self.plan.verdicts if isinstance(verdict, Yields)}
        for name in sorted(evicted ^ yielding):
            yield Violation("verdicts", name, "is evicted without the verdict `yields`, or the other way round")

    def _overdue(self, taker: Job) -> bool:
        said = [queue.reclaim_within for queue in path_of(self.policy, taker.spec.queue)]
        within = next((limit for limit in said if limit is not None), self.policy.scheduling.reclaim_within)
        return self._inside(taker) and self.snapshot.time - taker.submitted_at >= within

    def _reclaim_mode(self, taker: Job) -> str:
        said = [queue.reclaim for queue in path_of(self.policy, taker.spec.queue)]
        return next((mode for mode in said if mode), self.policy.scheduling.reclaim)

    def _class(self, job: Job) -> PriorityClass:
        return self.policy.priority_class(job) or PriorityClass("")

    def _gpus(self, job: Job) -> Counter[GpuType]:
        return self._count(job.placement)

    def _gpus_of_tasks(self, taker: JobName) -> Counter[GpuType]:
        return self._count(self.promises[taker].tasks) if taker in self.promises else Counter()

    def _count(self, tasks: Iterable[TaskPlacement]) -> Counter[GpuType]:
        count: Counter[GpuType] = Counter()
        for task in tasks:
            count[self.type_of.get(task.node, GpuType(""))] += task.gpus
        return +count
