"""Judges evictions that a rule asks for: a queue drains, a lowered limit is to be kept, a loan given back. Part of the checker.

S4 and S8 for those: a rule asks for each, none is superfluous, and none that is asked for is left out.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from solver.checker.case import JudgedPlan
from solver.checker.dues import charged_to
from solver.checker.host_fair import beside_of
from solver.checker.protection import too_soon
from solver.checker.reservation_documents import called_back
from solver.model.cluster import DeviceId, GpuType
from solver.model.inflight import ConvergenceClock
from solver.model.parts import owner_of
from solver.model.quantities import Instant
from solver.model.workload import Job, JobName
from solver.plan.plan import Departs, Evict, Shrink
from solver.plan.violation import Violation
from solver.policy.harm import Convergence
from solver.policy.tree import QuotaLine


def departure_violations(case: JudgedPlan) -> Iterable[Violation]:
    """Every eviction without a beneficiary that no rule asks for, and every one that is asked for and missing."""
    yield from _Departures(case).findings()


@dataclass(frozen=True)
class _Departures:
    case: JudgedPlan

    @cached_property
    def steps(self) -> dict[JobName, Evict | Shrink]:
        """By which step each part leaves for nobody."""
        if all(step.beneficiary is not None for step in self.case.leaving):
            return {}
        return {name: step for name, step in self.case.parted.steps.items() if step.beneficiary is None}

    def findings(self) -> Iterator[Violation]:
        """Every rule in turn."""
        said = {verdict.job for verdict in self.case.verdicts(Departs)}
        named = {step.job for step in self.steps.values()}
        for name in sorted(said ^ named):
            yield Violation("verdicts", name, "departs without being evicted, or the other way round")
        if self.steps:
            for job in self._live:
                step = self.steps.get(job.name)
                if step is not None:
                    yield from self._asked_for(step, job)
        most = self.case.policy.scheduling.evictions.per_round
        if most is None or len(named) < most:
            yield from self._left_out()
        elif len(named) > most:
            yield Violation("S9", "round", f"{len(named)} evictions without a beneficiary; at most {most} in a round")

    @cached_property
    def _live(self) -> list[Job]:
        """Who is there and may be asked to leave."""
        running, asked = ("running", "starting"), self.case.stopping
        return [
            job
            for job in self.case.parted.jobs.values()
            if job.phase in running and owner_of(job.name) not in asked and job.leaves != "not"
        ]

    @cached_property
    def _live_below(self) -> Mapping[str, list[Job]]:
        """The same by queue."""
        below: defaultdict[str, list[Job]] = defaultdict(list)
        for job in self._live:
            for queue in self.case.lookup.path(job.spec.queue):
                below[queue.name].append(job)
        return below

    def _asked_for(self, step: Evict | Shrink, job: Job) -> Iterator[Violation]:
        if step.means == "drain":
            if not self._drains(job):
                yield Violation("S8", job.name, "is drained, and no queue on its path drains")
            elif isinstance(step, Shrink):
                yield Violation("S8", job.name, "shrinks in a queue that drains, where all of it has to leave")
        elif step.means == "converge":
            clocks = [clock for clock in self._overdue if self._counts(job, clock)]
            if not any(self._may_leave(job, clock) for clock in clocks):
                yield Violation("S4", job.name, "leaves for a limit that may not make it leave")
            # It is one too many where without it every limit that it counts for would be kept as well.
            elif all(self._held(clock) + self._amount(job, clock) <= clock.most for clock in clocks):
                yield Violation("S8", job.name, "leaves for limits that are kept without it")
            elif self._has_gpus(job) and all(self._heals_without_gpus(clock) for clock in clocks):
                yield Violation("S8", job.name, "leaves with its GPUs where work without would do")
        elif step.means == "return":
            yield from self._given_back(job)
        else:
            yield Violation("S8", job.name, f"is evicted by {step.means} for no job")

    def _given_back(self, job: Job) -> Iterator[Violation]:
        """A gang that waits is to start on some of its devices before it could be asked any later; and it only borrows them."""
        now, known = self.case.snapshot.time, self.case.lookup.class_of(job)
        whole = self.case.jobs[owner_of(job.name)]
        due = now + self.case.policy.grace(job)
        begins = self._called_back.get(whole.name)
        if begins is not None and begins <= due:
            if known is not None and (why := too_soon(job, known, now)):
                yield Violation("S9", job.name, f"leaves for a Reservation document, and {why}")
            return
        starts = (self._reserved_from.get(device) for task in whole.placement for device in task.devices)
        if not any(start is not None and start <= due for start in starts):
            yield Violation("S8", job.name, "gives back what is not reserved, or not yet needed")
        if known is None or not known.preemptible or not self._borrows(job):
            yield Violation(
                "S4", job.name, "gives back what it need not: it is not preemptible, or inside its guarantee"
            )
        if (
            known is not None
            and now < (now if job.started_at is None else job.started_at) + known.protection.min_runtime
        ):
            yield Violation("S9", job.name, "gives back before its minimum runtime is over")

    @cached_property
    def _reserved_from(self) -> dict[DeviceId, Instant]:
        """From when devices are reserved for who waits."""
        waiting, reserved = {job.name for job in self.case.pending}, dict[DeviceId, Instant]()
        for held in self.case.snapshot.in_flight.reservations:
            for device in (device for task in held.tasks if held.holder in waiting for device in task.devices):
                reserved[device] = min(held.start, reserved.get(device, held.start))
        return reserved

    def _borrows(self, job: Job) -> bool:
        """Whether some queue on its path holds more than its guarantee of a type that it uses."""
        types = self.case.ground.gpu_types
        used = {types[task.node] for task in job.placement if task.node in types}
        lines = (QuotaLine(queue, gpu_type) for queue in self.case.lookup.on_path(job.spec.queue) for gpu_type in used)
        return any(self._use[line] > self.case.guaranteed.get(line, 0) for line in lines)

    @cached_property
    def _use(self) -> Counter[QuotaLine]:
        return self.case.lookup.added_up(charged_to(self.case.snapshot, self.case.ground.gpu_types))

    @cached_property
    def _called_back(self) -> Mapping[JobName, Instant]:
        return called_back(self.case)

    def _overstaying(self) -> Iterator[Violation]:
        """Nobody stays on what a document keeps who could be asked to leave by now."""
        gone, now = self.case.parted.leaving, self.case.snapshot.time
        for job in self._live if self._called_back else ():
            begins, known = self._called_back.get(owner_of(job.name)), self.case.lookup.class_of(job)
            if begins is None or known is None or job.name in gone or owner_of(job.name) in self.case.evicted:
                continue
            limit, grace = job.time_limit, self.case.policy.grace(job)
            ends = None if job.started_at is None or limit is None else job.started_at + limit
            due = job.phase == "running" and begins <= now + grace and not (ends is not None and ends <= begins)
            if due and not too_soon(job, known, now) and not self._shrinks(job):
                yield Violation("S10", job.name, "stays on what a Reservation document keeps, and could leave")

    def _left_out(self) -> Iterator[Violation]:
        yield from self._overstaying()
        leaving = self.case.parted.leaving if self._draining or self._overdue else frozenset()
        for job in self._live if self._draining else ():
            if job.name not in leaving and self._drains(job) and not self._shrinks(job):
                yield Violation("S8", job.name, "runs on in a queue that drains")
        for clock in self._overdue:
            if self._held(clock) > clock.most:
                below = self._live_below.get(clock.queue, ())
                could = (job for job in below if job.name not in leaving and self._may_leave(job, clock))
                first = next((job for job in could if not self._shrinks(job)), None)
                if first is not None:
                    problem = f"holds more than {clock.told}, and {first.name} could leave"
                    yield Violation("S3", clock.queue, problem)

    def _shrinks(self, job: Job) -> bool:
        """Some of its gang was asked to leave before: only once that has left the rest can be asked."""
        return owner_of(job.name) in self._shrinking

    @cached_property
    def _shrinking(self) -> frozenset[JobName]:
        return frozenset(intent.job for intent in self.case.intents if intent.kind == "shrink")

    @cached_property
    def _draining(self) -> frozenset[str]:
        """The queues that drain themselves."""
        return frozenset(queue.name for queue in self.case.policy.queues if queue.stop_policy == "HoldAndDrain")

    def _drains(self, job: Job) -> bool:
        return not self._draining.isdisjoint(self.case.lookup.on_path(job.spec.queue))

    @cached_property
    def _overdue(self) -> list[ConvergenceClock]:
        clocks = self.case.snapshot.in_flight.convergence
        return [clock for clock in clocks if clock.deadline <= self.case.snapshot.time]

    def _counts(self, job: Job, clock: ConvergenceClock) -> bool:
        return clock.queue in self.case.lookup.on_path(job.spec.queue) and self._amount(job, clock) > 0

    def _may_leave(self, job: Job, clock: ConvergenceClock) -> bool:
        """As the nearest queue above the limit says; what is not preemptible may where it borrows, which is not judged here."""
        known = self.case.lookup.class_of(job)
        if known is None or job.phase != "running" or not self._counts(job, clock):
            return False
        evict = self._convergence(clock).evict
        if job.name in self.steps and known.may_borrow:
            return evict != "none"
        return evict == "all" or (evict == "preemptible" and known.preemptible)

    def _convergence(self, clock: ConvergenceClock) -> Convergence:
        said = (queue.convergence for queue in self.case.lookup.path(clock.queue))
        return next((known for known in said if known is not None), self.case.policy.scheduling.convergence)

    @cached_property
    def _staying(self) -> Counter[QuotaLine]:
        """What stays below each queue, without who leaves by this plan's rules or was asked to before."""
        gone = {
            intent.job for intent in self.case.intents if intent.kind == "stop" and intent.evicts
        } | self.steps.keys()
        gone |= {name for name in self.case.parted.along if owner_of(name) in self.steps}

        def charges() -> Iterator[tuple[str, GpuType, int]]:
            for name, job in self.case.parted.jobs.items():
                goes_on = job.phase != "pending" and name not in gone
                tasks = job.placement if goes_on else self.case.promised.get(name, ())
                for gpu_type, milli in self.case.ground.charge(tasks).items():
                    yield job.spec.queue, gpu_type, milli

        return self.case.lookup.added_up(charges())

    @cached_property
    def _staying_beside(self) -> Counter[tuple[str, str]]:
        """The same of CPU and memory."""
        gone = {i.job for i in self.case.intents if i.kind == "stop" and i.evicts} | self.steps.keys()
        gone |= {name for name in self.case.parted.along if owner_of(name) in self.steps}
        found = Counter[tuple[str, str]]()
        for name, job in self.case.parted.jobs.items():
            goes_on = job.phase != "pending" and name not in gone
            cpu, memory = beside_of(job, job.placement if goes_on else self.case.promised.get(name, ()))
            for queue in self.case.lookup.path(job.spec.queue):
                found[queue.name, "cpu"] += cpu
                found[queue.name, "memory"] += memory
        return found

    def _held(self, clock: ConvergenceClock) -> int:
        if clock.resource is not None:
            return self._staying_beside[clock.queue, clock.resource]
        return self._staying[QuotaLine(clock.queue, clock.gpu_type)]

    def _amount(self, job: Job, clock: ConvergenceClock) -> int:
        """What a job holds of what a clock is about."""
        if clock.resource is None:
            return self.case.ground.charge(job.placement).get(clock.gpu_type, 0)
        return beside_of(job, job.placement)[0 if clock.resource == "cpu" else 1]

    def _has_gpus(self, job: Job) -> bool:
        return any(self.case.ground.charge(job.placement).values())

    def _heals_without_gpus(self, clock: ConvergenceClock) -> bool:
        """Whether a limit of CPU or memory would be kept if all work without GPUs left that may."""
        if clock.resource is None:
            return False
        # Of these some leave already, and are not among what stays.
        below = self._live_below.get(clock.queue, ())
        alone = [job for job in below if self._may_leave(job, clock) and not self._has_gpus(job)]
        with_gpus = [job for job in below if job.name in self.steps and self._has_gpus(job)]
        staying = sum(self._amount(job, clock) for job in alone if job.name not in self.steps)
        back = sum(self._amount(job, clock) for job in with_gpus)
        return self._held(clock) + back - staying <= clock.most
