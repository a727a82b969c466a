"""Judges evictions and promises: S4 who may be evicted for whom, S8 for whose sake, S9 not too soon, too often or too many.

Part of the checker. It needs every job and node that the plan names to be in the snapshot.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from solver.checker.borrowing import Borrowing
from solver.checker.case import Charge, JudgedPlan
from solver.checker.claims import claim_violations
from solver.checker.host import HostClaims
from solver.checker.parts import PartsByName
from solver.checker.pledges import unmade
from solver.checker.protection import too_early, too_soon
from solver.checker.turns import gives_way
from solver.checker.user_reclaim import takes_back_share
from solver.model.cluster import GpuType, NodeName
from solver.model.parts import owner_of
from solver.model.quantities import Duration, MilliGpu
from solver.model.workload import Job, JobName, QueueName, TaskPlacement
from solver.plan.plan import Evict, Shrink, Yields
from solver.plan.violation import Violation
from solver.policy.policy import PriorityClass
from solver.policy.tree import QuotaLine


def eviction_violations(case: JudgedPlan) -> Iterable[Violation]:
    """Every eviction that is not lawful, and every promise that can't come true."""
    standing = Borrowing(case)
    yield from _Evictions(case, standing, HostClaims(case)).findings()
    yield from claim_violations(case, standing)


@dataclass(frozen=True)
class _Evictions:
    """The evictions of one plan before the rules."""

    case: JudgedPlan
    standing: Borrowing
    host: HostClaims
    _known_inside: dict[JobName, bool] = field(default_factory=dict)
    _promised: dict[JobName, Charge] = field(default_factory=dict)
    _held_by: dict[QueueName, Counter[GpuType]] = field(default_factory=dict)

    @cached_property
    def steps(self) -> dict[JobName, Evict | Shrink]:
        """By which step each part leaves for somebody. Who moves, and where to, is for moves."""
        if not self.case.leaving:
            return {}
        steps = self.case.parted.steps.items()
        return {name: s for name, s in steps if s.beneficiary is not None and s.means != "move"}

    @property
    def jobs(self) -> PartsByName:
        """Live jobs, in parts."""
        return self.case.parted.jobs

    def findings(self) -> Iterator[Violation]:
        """Every rule for every eviction."""
        asked = {i.job for i in self.case.intents if i.kind in ("stop", "shrink")}
        promises = self.case.promises
        for name, step in self.steps.items():
            job = self.jobs[name]
            if job.phase != "running" or job.attempt != step.attempt or step.job in asked:
                yield Violation("S11", job.name, f"is evicted in attempt {step.attempt} while {job.phase}")
            elif step.beneficiary and step.beneficiary in self._growing:
                yield from self._for_growth(job, self._growing[step.beneficiary])
            elif step.beneficiary is None or step.beneficiary not in promises or step.beneficiary not in self.jobs:
                yield Violation("S8", job.name, f"is evicted for {step.beneficiary}, which is promised nothing")
            else:
                yield from self._one(job, self.jobs[step.beneficiary])
        yield from self._means()
        yield from self._beyond_growth()
        yield from self._drained_for()
        yield from self._limits()
        yield from self._verdicts()
        if self.steps:
            yield from self.host.findings(self.steps)

    def _one(self, victim: Job, preemptor: Job) -> Iterator[Violation]:
        # A preemptor may have what is free, and another, which could have had that, what leaves for the preemptor.
        leaves = self._leaves_with(victim)
        if not any(self._frees_quota(part, preemptor) for part in leaves) and self._nodes_of_takers.isdisjoint(
            task.node for part in leaves for task in part.placement
        ):
            yield Violation("S8", victim.name, f"is evicted for {preemptor.name} and frees nothing that a job gets")
        problem = self._unlawful(victim, preemptor)
        if problem:
            yield Violation("S4", victim.name, problem)
        in_turn = self._by(victim, preemptor) == "turn"
        may = self._overdue(preemptor) and not in_turn
        now, path = self.case.snapshot.time, self.case.lookup.path(preemptor.spec.queue)
        for problem in (
            too_soon(victim, self._class(victim), now),
            too_early(preemptor, self._class(preemptor), path, now),
        ):
            if problem and not may:
                yield Violation("S9", victim.name, problem)
        if victim.held_by and victim.leaves == "not" and (in_turn or not self._passes_budgets(preemptor)):
            yield Violation(
                "S9", victim.name, f"is held by {victim.held_by}, and {preemptor.name} has to wait for that"
            )

    def _leaves_with(self, part: Job) -> Sequence[Job]:
        """A part of a gang that leaves, and where it is what the gang can't do without, all the others."""
        return self.jobs.of(part.name) if isinstance(self.steps[part.name], Evict) else (part,)

    @cached_property
    def _growing(self) -> Mapping[JobName, Job]:
        """Running gangs for whose growth somebody leaves."""
        names = {step.beneficiary for step in self.steps.values()}
        running = (job for name, job in self.case.jobs.items() if name in names and job.phase == "running")
        return {job.name: job for job in running if any(self._lacks(job).values())}

    def _for_growth(self, victim: Job, gang: Job) -> Iterator[Violation]:
        """Growth takes back what others borrowed, and nothing else; what protects that holds."""
        known = self._class(victim)
        if not (known.preemptible or known.may_borrow):
            yield Violation("S4", victim.name, "is not preemptible")
        elif victim.spec.queue == gang.spec.queue or self.standing.towards(victim, gang) != "borrowed":
            yield Violation("S4", victim.name, f"leaves for the growth of {gang.name}, and borrows nothing from it")
        problem = too_soon(victim, known, self.case.snapshot.time)
        if victim.leaves == "not":
            problem = f"is held by {victim.held_by}"
        if problem:
            yield Violation("S9", victim.name, problem)

    def _beyond_growth(self) -> Iterator[Violation]:
        """No more leaves for the growth of a queue's gangs than they lack, and than lies inside the queue's guarantee."""
        lacking, left = Counter[QuotaLine](), Counter[QuotaLine]()
        queues = {gang.spec.queue for gang in self._growing.values()}
        # One gang is named where several of its queue grow by what leaves.
        for job in self.case.jobs.values() if queues else ():
            if job.phase == "running" and job.spec.queue in queues:
                lacking.update(self._lacks(job))
        for name, step in self.steps.items():
            if step.beneficiary and step.beneficiary in self._growing:
                queue = self._growing[step.beneficiary].spec.queue
                for gpu_type, milli in self.standing.gpus(self.jobs[name]).items():
                    left[QuotaLine(queue, gpu_type)] += milli
        for line, milli in sorted(left.items()):
            most = max(0, min(lacking[line], self.case.guaranteed.get(line, 0) - self._held(line)))
            if milli > most:
                problem = f"{MilliGpu(milli)} {line.gpu_type} leave for gangs that may grow by {MilliGpu(most)}"
                yield Violation("S4", line.queue, problem)

    def _lacks(self, gang: Job) -> Counter[QuotaLine]:
        """By type that it uses, what a gang would have beside what it has."""
        found, there = Counter[QuotaLine](), Counter(task.group for task in gang.placement)
        types = {task.group: self.case.ground.gpu_types[task.node] for task in gang.placement}
        each = {task.group: task.gpus for task in gang.placement}
        for group in gang.spec.task_groups:
            if group.name in types:
                line = QuotaLine(gang.spec.queue, types[group.name])
                found[line] += max(0, group.replicas - there[group.name]) * each[group.name]
        return found

    @cached_property
    def _nodes_of_takers(self) -> frozenset[NodeName]:
        """Where those are to be who are promised something."""
        return frozenset(task.node for step in self.case.promises.values() for task in step.tasks)

    def _frees_quota(self, victim: Job, preemptor: Job) -> bool:
        """Whether a limit binds both: that of their own queue, a max above them, or what others lend."""
        shared = self.case.lookup.on_path(victim.spec.queue)
        above = [queue for queue in self.case.lookup.path(preemptor.spec.queue) if queue.name in shared]
        return (
            victim.spec.queue == preemptor.spec.queue
            or any(entry.max is not None for queue in above for entry in (*queue.quota, *queue.host_quota))
            or any(entry.per_user is not None for queue in above for entry in queue.host_quota)
            or self._frees_what_may_be_lent(victim)
        )

    def _frees_what_may_be_lent(self, victim: Job) -> bool:
        """Whether somebody does not lend all its GPUs of a type that the victim holds: then it leaves more of the rest."""
        gpus = self.standing.gpus(victim)
        return any(gpus.get(gpu_type) for gpu_type in self.case.lookup.lent_in_part)

    def _unlawful(self, victim: Job, preemptor: Job) -> str:
        mine, theirs = self._class(victim), self._class(preemptor)
        refusal = self.host.refusal(victim, preemptor)
        if refusal:
            return refusal
        if victim.spec.queue == preemptor.spec.queue:
            if mine.preemptible and self.case.lookup.yields_inside(victim.spec.queue, victim, preemptor):
                return ""
            if mine.preemptible and mine.value == theirs.value:
                running = self.case.jobs[self.steps[victim.name].job]
                problem = takes_back_share(running, preemptor, self.case)
                return gives_way(running, preemptor, self.case) if problem is None else problem
            told = f"priority {mine.value} against {theirs.value}"
            if mine.preemptible and mine.value < theirs.value:
                told = f"preemptWithin of queue {victim.spec.queue} is never"
            return f"is not preemptible by {preemptor.name}: {told}"
        if not mine.preemptible and not mine.may_borrow:
            return "is not preemptible"
        is_inside = self._inside(preemptor) or self._claims_from(victim, preemptor)
        is_due = is_inside or self.case.lookup.yields_by_value(victim, preemptor)
        if not is_due and self._reclaim_mode(preemptor) == "guaranteed":
            return f"is evicted for {preemptor.name}, which is not inside its guarantee"
        worst = self.host.towards(self.standing.towards(victim, preemptor), victim, preemptor)
        if worst == "inside":
            return f"is inside the guarantee of {victim.spec.queue} towards {preemptor.spec.queue}"
        if worst == "straddles" and not is_inside:
            return f"crosses a guarantee's line, and {preemptor.name} is not inside its own guarantee"
        return ""

    def _drained_for(self) -> Iterator[Violation]:
        """S4: GPUs are emptied, to be partitioned anew, for nobody but guarantees."""
        for name, step in self.case.promises.items():
            if unmade(self.case, step.tasks) and name in self.jobs and not self._inside(self.jobs[name]):
                yield Violation(
                    "S4", name, "is promised a GPU that is to be partitioned, and is not inside its guarantee"
                )

    def _means(self) -> Iterator[Violation]:
        """S4: every step says by what means it is lawful: the most harmful of its parts'."""
        needed: dict[JobName, set[str]] = defaultdict(set)
        for name, step in self.steps.items():
            preemptor = self.jobs.get(step.beneficiary) if step.beneficiary else None
            if preemptor is not None:
                needed[step.job].add(self._by(self.jobs[name], preemptor))
        for step in {id(step): step for step in self.steps.values()}.values():
            expected = next(
                (means for means in ("straddle", "turn", "preempt", "reclaim") if means in needed[step.job]), ""
            )
            if expected and step.means != expected:
                yield Violation("S4", step.job, f"is taken by {step.means}, which should be {expected}")

    def _by(self, victim: Job, preemptor: Job) -> str:
        if victim.spec.queue == preemptor.spec.queue:
            is_equal = self._class(victim).value == self._class(preemptor).value
            by_value = not is_equal or self.case.lookup.yields_inside(victim.spec.queue, victim, preemptor)
            return "preempt" if by_value else "turn"
        worst = self.host.towards(self.standing.towards(victim, preemptor), victim, preemptor)
        return "straddle" if worst == "straddles" else "reclaim"

    def _inside(self, preemptor: Job) -> bool:
        """Whether all that a preemptor is promised fits in its queue's guarantee, once those evicted from the queue have left;
        where it has no GPUs, in what that is guaranteed of CPU and memory.
        """
        if not self._promised_to(preemptor.name):
            return preemptor.name in self.host.inside
        if preemptor.name not in self._known_inside:
            wanted = {
                QuotaLine(preemptor.spec.queue, gpu_type): gpus
                for gpu_type, gpus in self._promised_to(preemptor.name).items()
            }
            self._known_inside[preemptor.name] = all(
                self._held(line) + gpus <= self.case.guaranteed.get(line, 0) for line, gpus in wanted.items()
            )
        return self._known_inside[preemptor.name]

    def _claims_from(self, victim: Job, preemptor: Job) -> bool:
        """Whether a preemptor lies inside what a queue above it shares, and the victim is not below that."""
        if not self._promised_to(preemptor.name):
            return self.host.common.is_claim(victim, preemptor)
        known = {self._sharing(preemptor, gpu_type) for gpu_type in self._promised_to(preemptor.name)}
        is_apart = known.isdisjoint(self.case.lookup.on_path(victim.spec.queue))
        return is_apart and self._inside_common(preemptor)

    def _inside_common(self, preemptor: Job) -> bool:
        """Whether all that a preemptor is promised fits in what a queue above shares, beside all that queues below that hold."""
        wanted = self._promised_to(preemptor.name)
        for gpu_type, gpus in wanted.items():
            shared = self._sharing(preemptor, gpu_type)
            if shared is None:
                return False
            below = (name for name in self.case.lookup.queues if shared in self.case.lookup.on_path(name))
            held = sum(self._held(QuotaLine(QueueName(name), gpu_type)) for name in below)
            if held + gpus > self.case.guaranteed.get(QuotaLine(shared, gpu_type), 0):
                return False
        return bool(wanted)

    def _sharing(self, preemptor: Job, gpu_type: GpuType) -> QueueName | None:
        return self.case.lookup.shares_from(preemptor.spec.queue, gpu_type)

    def _held(self, line: QuotaLine) -> int:
        """What jobs of a queue itself hold of a type once those evicted have left, and who moves has moved."""
        if line.queue not in self._held_by:
            self._held_by[line.queue] = self._staying_in(line.queue)
        return self._held_by[line.queue][line.gpu_type]

    def _staying_in(self, queue: QueueName) -> Counter[GpuType]:
        leaving, apart = self._leaving, self._apart
        # A gang of which nothing leaves holds what all its parts do.
        whole = (job for job in self.case.of_queue.get(queue, ()) if job.name not in apart)
        gangs = (job.name for job in self.case.of_queue.get(queue, ()) if job.name in apart)
        parts = (part for gang in gangs for part in self.case.parted.jobs.of(gang))
        held, promised = Counter[GpuType](), self.case.promised.keys() - self.case.withdrawn
        for job in (*whole, *parts):
            goes_on = job.phase != "pending" and job.name not in leaving
            if goes_on or job.name in promised:
                held.update(self.standing.gpus(job) if goes_on else self._count(self.case.promised[job.name]))
        return held

    @cached_property
    def _leaving(self) -> frozenset[JobName]:
        """Every part that leaves; who moves holds as much elsewhere."""
        moved = self.case.moving
        return self.case.sent_back | {name for name in self.case.parted.leaving if owner_of(name) not in moved}

    @cached_property
    def _apart(self) -> frozenset[JobName]:
        """Gangs of which anything leaves."""
        shrinking = {intent.job for intent in self.case.intents if intent.kind == "shrink"}
        return frozenset(owner_of(name) for name in self._leaving) | shrinking

    def _limits(self) -> Iterator[Violation]:
        limits = self.case.policy.scheduling.evictions
        bounded = {
            name: preemptor
            for name, step in self.steps.items()
            if (preemptor := step.beneficiary) in self.jobs and preemptor and not self._overdue(self.jobs[preemptor])
        }
        if limits.per_round is not None and (bounded or self.case.moving):
            # What an overdue guarantee takes may come on top of what the others, and who moves, have to keep to.
            overdue = {step.job for name, step in self.steps.items() if name not in bounded}
            evicted = len({owner_of(name) for name in self.case.parted.leaving} - overdue)
            if evicted > limits.per_round:
                yield Violation("S9", "round", f"{evicted} evictions; at most {limits.per_round} in a round")
        lost: defaultdict[JobName, int] = defaultdict(int)
        along = (
            {name: owner_of(name) for name in self.case.parted.along if owner_of(name) in bounded} if bounded else {}
        )
        for name in bounded.keys() | along.keys():
            lost[bounded[along.get(name, name)]] += sum(self.standing.gpus(self.jobs[name]).values())
        for preemptor in sorted(lost.keys() - self._growing.keys()):
            gained, given_up = MilliGpu(sum(self._promised_to(preemptor).values())), MilliGpu(lost[preemptor])
            if gained < limits.min_gain * given_up:
                yield Violation("S9", preemptor, f"gains {gained} GPUs for {given_up}; minGain is {limits.min_gain}")

    def _verdicts(self) -> Iterator[Violation]:
        evicted = {step.job for step in self.steps.values()}
        yielding = {verdict.job for verdict in self.case.verdicts(Yields)}
        for name in sorted(evicted ^ yielding):
            yield Violation("verdicts", name, "is evicted without the verdict `yields`, or the other way round")

    def _overdue(self, preemptor: Job) -> bool:
        said = [queue.reclaim_within for queue in self.case.lookup.path(preemptor.spec.queue)]
        within = next((limit for limit in said if limit is not None), self.case.policy.scheduling.reclaim_within)
        return self._has_waited(preemptor, within)

    def _passes_budgets(self, preemptor: Job) -> bool:
        within = self.case.policy.scheduling.evictions.disruption_budgets_hold_for
        return self._overdue(preemptor) if within is None else self._has_waited(preemptor, within)

    def _has_waited(self, preemptor: Job, within: Duration) -> bool:
        """A guarantee that waits since then; what grows never has."""
        if preemptor.name in self._growing:
            return False
        inside = self._inside(preemptor) or self._inside_common(preemptor) or preemptor.name in self.host.common.claims
        return inside and self.case.snapshot.time - preemptor.submitted_at >= within

    def _reclaim_mode(self, preemptor: Job) -> str:
        said = [queue.reclaim for queue in self.case.lookup.path(preemptor.spec.queue)]
        return next((mode for mode in said if mode), self.case.policy.scheduling.reclaim)

    def _class(self, job: Job) -> PriorityClass:
        return self.case.lookup.class_of(job) or PriorityClass("")

    def _promised_to(self, preemptor: JobName) -> Charge:
        if preemptor not in self._promised:
            promise = self.case.promises.get(preemptor)
            given = self.case.given(promise) if promise else {}
            self._promised[preemptor] = {gpu_type: milli for gpu_type, milli in given.items() if milli}
        return self._promised[preemptor]

    def _count(self, tasks: Iterable[TaskPlacement]) -> Charge:
        return {gpu_type: milli for gpu_type, milli in self.case.ground.charge(tasks).items() if milli}
