"""Judges jobs that leave for a single job which is promised their place, by standings and sums that are kept for that.

Part of the checker, by its own arithmetic. The rules are those of evictions (S4, S8, S9, S11 to S13), and stricter where a plan of
few jobs can't know enough: whole jobs alone leave, borrowed ones for a job inside its guarantees on its whole path, and in its own
queue those of lower priority.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from solver.checker.borrowing import Borrowing
from solver.checker.case import Charge, JudgedPlan
from solver.checker.dues import InsideLedger
from solver.checker.pledges import unmade
from solver.checker.policy_index import PolicyIndex
from solver.checker.protection import too_early, too_soon
from solver.model.cluster import GpuType
from solver.model.parts import in_parts
from solver.model.quantities import Instant, MilliGpu
from solver.model.snapshot import Snapshot, foreseen
from solver.model.workload import Job, JobName, QueueName
from solver.plan.plan import Certificate, Evict, Nominate, Plan
from solver.plan.violation import Violation
from solver.policy.policy import Policy, PriorityClass


@dataclass(slots=True)
class RunningJobs:
    """How those that run stand towards the guarantees of their queues, in one snapshot. `changed`: those that do no longer.

    A borrowed job that has left gives no other a right to its place. So a standing holds while nothing but that has happened.
    """

    standing: Borrowing
    changed: set[JobName] = field(default_factory=set)

    @classmethod
    def of(cls, snapshot: Snapshot, lookup: PolicyIndex, changed: Collection[JobName]) -> RunningJobs:
        """Those of a snapshot, but for some that are elsewhere by now, or were asked to leave."""
        world, nothing = foreseen(snapshot), Plan("", "", (), (), Certificate("none", (), 0.0, "", 0))
        case = JudgedPlan.of(world, lookup.policy, nothing)
        return cls(Borrowing(case, frozenset(changed)), set(changed))

    def is_behind_all(self, job: Job | None) -> bool:
        """Whether a job is borrowed in all lines in which it stands: none comes to lie inside a guarantee when it leaves."""
        parts = self.standing.case.parted.jobs
        if job is None or job.name in self.changed or job.name not in parts:
            return True
        names = {job.name, *(part.name for part in in_parts(job))} & parts.keys()
        return all(self.standing.reach(parts[name]) is None for name in names)


@dataclass(frozen=True, slots=True)
class JudgedNomination:
    """A promise and who leaves for it. `places`: the nodes that it names, as a plan; `inside`: what lies inside guarantees."""

    preemptor: Job
    promise: Nominate
    evictions: Sequence[Evict]
    places: JudgedPlan
    lookup: PolicyIndex
    running: RunningJobs
    victims: Mapping[JobName, Job]
    asked: Collection[JobName]
    inside: InsideLedger
    now: Instant

    def findings(self) -> Iterator[Violation]:
        """Every rule for each that leaves, then for all of them."""
        gain = self._gain
        if unmade(self.places, self.promise.tasks):
            yield Violation("S4", self.promise.job, "is promised a GPU that is to be partitioned")
        if not self.evictions:
            return
        if not any(gain.values()):
            yield Violation("S4", self.promise.job, "has no GPUs, and others leave for it")
        if self._policy.scheduling.evictions.per_round is not None:
            yield Violation("S9", "round", "evictions are limited by round")
        known = [step for step in self.evictions if step.job in self.victims]
        for step in self.evictions:
            job = self.victims.get(step.job)
            if job is None or job.phase != "running" or job.attempt != step.attempt or step.job in self.asked:
                yield Violation("S11", step.job, f"is evicted in attempt {step.attempt}, in which it does not run on")
            elif step.beneficiary != self.promise.job:
                yield Violation("S8", step.job, f"is evicted for {step.beneficiary}, which is promised nothing")
            else:
                yield from self._one(step, job)
        if len({step.job for step in known}) == len(self.evictions):
            yield from self._together(gain)

    # Each of them.

    def _one(self, step: Evict, victim: Job) -> Iterator[Violation]:
        nodes = {task.node for task in self.promise.tasks}
        if not self._frees_quota(victim) and nodes.isdisjoint(task.node for task in victim.placement):
            yield Violation("S8", victim.name, f"is evicted for {self.promise.job} and frees nothing that it gets")
        if victim.leaves == "not":
            yield Violation("S4", victim.name, "may not be evicted now, for a reason that is not the policy's")
        problem = self._unlawful(step, victim)
        if problem:
            yield Violation("S4", victim.name, problem)
        path = self.lookup.path(self.preemptor.spec.queue)
        for problem in (
            too_soon(victim, self._class(victim), self.now),
            too_early(self.preemptor, self._class(self.preemptor), path, self.now),
        ):
            if problem:
                yield Violation("S9", victim.name, problem)

    def _unlawful(self, step: Evict, victim: Job) -> str:
        mine, theirs = self._class(victim), self._class(self.preemptor)
        if not any(self._charge(victim).values()):
            return "has no GPUs, and is evicted by a plan of few jobs"
        if mine.preemptible and len(in_parts(victim)) > 1:
            return "could shrink, and is evicted by a plan of few jobs"
        if victim.spec.queue == self.preemptor.spec.queue:
            if step.means != "preempt":
                return f"is taken by {step.means}, which should be preempt"
            if not mine.preemptible or not self.lookup.yields_inside(victim.spec.queue, victim, self.preemptor):
                return f"is not preemptible by {self.promise.job}: priority {mine.value} against {theirs.value}"
            return ""
        if step.means != "reclaim":
            return f"is taken by {step.means}, which should be reclaim"
        if not mine.preemptible and not mine.may_borrow:
            return "is not preemptible"
        if victim.name in self.running.changed:
            return "has not been seen to borrow"
        stands = self.running.standing.towards(self.running.standing.case.jobs[victim.name], self.preemptor)
        return "" if stands == "borrowed" else f"{stands} the guarantee of {victim.spec.queue}"

    def _frees_quota(self, victim: Job) -> bool:
        """Whether a limit binds both: that of their own queue, a max above them, or what others lend."""
        shared = self.lookup.on_path(victim.spec.queue)
        above = [queue for queue in self.lookup.path(self.preemptor.spec.queue) if queue.name in shared]
        return (
            victim.spec.queue == self.preemptor.spec.queue
            or any(entry.max is not None for queue in above for entry in (*queue.quota, *queue.host_quota))
            or any(entry.per_user is not None for queue in above for entry in queue.host_quota)
            or not self.lookup.lent_in_part.isdisjoint(kind for kind, milli in self._charge(victim).items() if milli)
        )

    # All of them.

    def _together(self, gain: Charge) -> Iterator[Violation]:
        charges = {step.job: self._charge(self.victims[step.job]) for step in self.evictions}
        units = sorted(sum(charge.values()) for charge in charges.values())
        gained, given_up = sum(gain.values()), sum(units)
        if given_up - units[-1] >= gained and given_up > gained:
            yield Violation("S13", self.promise.job, f"{MilliGpu(given_up)} GPUs leave for {MilliGpu(gained)}")
        least = self._policy.scheduling.evictions.min_gain
        if gained < least * given_up:
            told = f"gains {MilliGpu(gained)} GPUs for {MilliGpu(given_up)}; minGain is {least}"
            yield Violation("S9", self.promise.job, told)
        queue, own, others = self.preemptor.spec.queue, Counter[GpuType](), Counter[tuple[QueueName, GpuType]]()
        for name, charge in charges.items():
            for kind, milli in charge.items():
                if self.victims[name].spec.queue == queue:
                    own[kind] += milli
                else:
                    others[self.victims[name].spec.queue, kind] += milli
        lacking = self._lacking(gain, own, others)
        if lacking:
            told = f"has others leave, and is not inside the guarantee of {', '.join(sorted(lacking))}"
            yield Violation("S12", self.promise.job, told)

    def _lacking(
        self, gain: Charge, own: Mapping[GpuType, int], others: Mapping[tuple[QueueName, GpuType], int]
    ) -> set[QueueName]:
        """The queues on its path in whose guarantees it does not lie once these have left.

        A queue that holds more than its guarantee gains no right against others by its own work's leaving.
        """
        queue = self.preemptor.spec.queue
        lines = {kind: self.lookup.lines(queue, kind) for kind in gain}
        gone = [(name, kind, milli) for (name, kind), milli in others.items()]
        within = all(self.inside.held[of[0]] <= self.inside.limits.get(of[0], 0) for of in lines.values())
        gone += [(queue, kind, milli) for kind, milli in own.items()] if within or not others else []
        for name, kind, milli in gone:
            self.inside.add(name, kind, -milli)
        lacking = {
            line.queue
            for kind, of in lines.items()
            for line in of
            if gain[kind] and self.inside.left(line) < gain[kind]
        }
        for name, kind, milli in gone:
            self.inside.add(name, kind, milli)
        return lacking

    @property
    def _policy(self) -> Policy:
        return self.lookup.policy

    @property
    def _gain(self) -> Charge:
        return self.places.given(self.promise)

    def _charge(self, job: Job) -> Charge:
        return self.running.standing.case.ground.charge(job.placement)

    def _class(self, job: Job) -> PriorityClass:
        return self.lookup.class_of(job) or PriorityClass("")
