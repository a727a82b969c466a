"""By what right jobs have others leave, and whether as much leaves as is gained: S12 and S13, over the plan in its order.

Part of the checker. A job that lies inside the guarantees of its queue, and of those above it below the first that it shares
with the queue that gives, takes what is borrowed; so does one that lies inside what a queue above it shares with those below it, of
queues that are not below that. Any other takes for its fair share, and then the queues that give have to be
above theirs, and the least served of the queues side by side have to have more by it. How each queue stands is counted as the
plan goes on, promise by promise; what starts beside that is left out, since nobody says when in a round it was decided. What
leaves for gangs that grow inside guarantees has left before anything is claimed beyond one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from solver.checker.borrowing import Borrowing
from solver.checker.case import Charge, JudgedPlan
from solver.checker.dues import Charged, InsideLedger
from solver.checker.end_state import EndState
from solver.checker.fair_division import FairDivision
from solver.checker.vain_evictions import vain_shrinks
from solver.model.cluster import GpuType
from solver.model.parts import without
from solver.model.quantities import MilliGpu
from solver.model.workload import JobName, QueueName
from solver.plan.plan import Evict, Nominate, Shrink
from solver.plan.violation import Violation
from solver.policy.tree import QuotaLine


def claim_violations(case: JudgedPlan, standing: Borrowing) -> Iterator[Violation]:
    """Every job for which others leave without a right to that, and every queue for whose jobs too many leave."""
    if any(step.beneficiary is not None and step.means != "move" for step in case.leaving):
        yield from _Claims(case, standing).findings()


class _Giver(NamedTuple):
    """What leaves for a job and can't be divided: all of a running one, or one task of it. `part`: its name among the parts."""

    name: JobName
    part: JobName
    queue: QueueName
    charge: Charge

    @property
    def milli(self) -> int:
        """Of all types."""
        return sum(self.charge.values())


@dataclass
class _Claims:
    case: JudgedPlan
    standing: Borrowing

    def findings(self) -> Iterator[Violation]:
        """Every promise in the order of the plan, then what each queue's jobs have leave altogether."""
        for charged in self._own:
            self._count(charged)
        for step in self.case.steps(Nominate):
            if step.job not in self.case.moving and step.job in self.case.jobs:
                yield from self._promise(step)
        yield from self._exchanges()

    @cached_property
    def _own(self) -> Sequence[Charged]:
        """What queues hold by themselves before anybody leaves for another; what a rule has leave, or is withdrawn, is gone."""
        case, held = self.case, Counter[tuple[QueueName, GpuType]]()
        for queue, charge in self._charged():
            for gpu_type, milli in charge.items():
                held[queue, gpu_type] += milli
        for step in case.leaving:
            if step.beneficiary is None:
                tasks = case.jobs[step.job].placement if isinstance(step, Evict) else step.tasks
                self._take(held, case.jobs[step.job].spec.queue, case.ground.charge(tasks))
        for name in case.withdrawn & case.promised.keys() & case.jobs.keys():
            self._take(held, case.jobs[name].spec.queue, case.ground.charge(case.promised[name]))
        return [(queue, gpu_type, milli) for (queue, gpu_type), milli in held.items()]

    def _charged(self) -> Iterator[tuple[QueueName, Charge]]:
        """What each job is charged: what it keeps, or where it was asked to leave, or waits, what it was promised."""
        case = self.case
        leaves = {(intent.job, intent.attempt) for intent in case.snapshot.in_flight.evictions}
        shrinking = {intent.job: intent.tasks for intent in case.intents if intent.kind == "shrink"}
        for job in case.snapshot.jobs:
            if job.phase == "pending" or (job.name, job.attempt) in leaves:
                if job.name in case.promised:
                    yield job.spec.queue, case.ground.charge(case.promised[job.name])
            elif job.name in shrinking:
                yield job.spec.queue, case.ground.charge(without(job.placement, shrinking[job.name]))
            elif job.placement:
                yield job.spec.queue, case.held[job.name]

    @staticmethod
    def _take(held: Counter[tuple[QueueName, GpuType]], queue: QueueName, charge: Charge) -> None:
        for gpu_type, milli in charge.items():
            held[queue, gpu_type] -= milli

    @cached_property
    def _guaranteed(self) -> InsideLedger:
        return InsideLedger(self.case.lookup, self.case.guaranteed)

    @cached_property
    def _common(self) -> InsideLedger:
        return InsideLedger(self.case.lookup, self.case.common)

    @cached_property
    def _fair(self) -> FairDivision:
        return FairDivision(self.case, self._own)

    @cached_property
    def _used(self) -> Counter[QuotaLine]:
        return Counter()

    def _count(self, charged: Charged) -> None:
        queue, gpu_type, milli = charged
        if milli:
            self._guaranteed.add(queue, gpu_type, milli)
            self._common.add(queue, gpu_type, milli)
            for line in self.case.lookup.lines(queue, gpu_type):
                self._used[line] += milli

    @cached_property
    def _starting(self) -> Counter[QuotaLine]:
        """What starts beside what is promised, on every line."""
        steps = [step for step in self.case.placing if step.job in self.case.started]
        charged = ((self.case.jobs[step.job].spec.queue, self.case.given(step)) for step in steps)
        return self.case.lookup.added_up((queue, *one) for queue, charge in charged for one in charge.items())

    @cached_property
    def _givers(self) -> Mapping[JobName, list[_Giver]]:
        """What leaves, by for whom; what leaves for the growth of gangs is for evictions."""
        givers = defaultdict[JobName, list[_Giver]](list)
        for beneficiary, giver in self._leaving():
            if beneficiary not in self.case.for_growth:
                givers[beneficiary].append(giver)
        return givers

    @cached_property
    def _for_growth(self) -> Counter[QuotaLine]:
        """What leaves for the growth of gangs, on every line. They grow inside guarantees, which comes before all beyond these."""
        growing = (giver for beneficiary, giver in self._leaving() if beneficiary in self.case.for_growth)
        return self.case.lookup.added_up((giver.queue, *one) for giver in growing for one in giver.charge.items())

    def _leaving(self) -> Iterator[tuple[JobName, _Giver]]:
        """What leaves for whom."""
        for step in self.case.leaving:
            if isinstance(step, Evict) and step.beneficiary is not None and step.means != "move":
                queue = self.case.jobs[step.job].spec.queue
                yield step.beneficiary, _Giver(step.job, step.job, queue, self.case.held.get(step.job, {}))
        for name, part in self.case.parted.steps.items():
            if isinstance(part, Shrink) and part.beneficiary:
                job = self.case.parted.jobs[name]
                yield part.beneficiary, _Giver(part.job, name, job.spec.queue, self.case.ground.charge(job.placement))

    # One promise.

    def _promise(self, step: Nominate) -> Iterator[Violation]:
        queue, gain = self.case.jobs[step.job].spec.queue, self.case.given(step)
        givers = self._givers.get(step.job, ())
        own, others = [one for one in givers if one.queue == queue], [one for one in givers if one.queue != queue]
        if not others:
            for giver in own:
                self._leave(giver)
            for gpu_type, milli in gain.items():
                self._count((queue, gpu_type, milli))
            return
        for giver in others:
            self._leave(giver)
        # A queue that holds more than its guarantee gains no right against others by its own work's leaving.
        sharing = {self.case.lookup.shares_from(queue, gpu_type) for gpu_type, milli in gain.items() if milli}
        within = all(self._is_within(queue, gpu_type) for gpu_type in gain)
        common_within = all(self._is_within(name, gpu_type) for name in sharing if name for gpu_type in gain)
        before_own = self._outside(self._guaranteed, queue, gain), self._outside(self._common, queue, gain)
        for giver in own:
            self._leave(giver)
        outside = self._outside(self._guaranteed, queue, gain) if within else before_own[0]
        outside_common = self._outside(self._common, queue, gain) if common_within else before_own[1]
        for gpu_type, milli in gain.items():
            self._count((queue, gpu_type, milli))
        beyond = [one for one in others if not outside.isdisjoint(self._apart(queue, one.queue))]
        # What a queue above shares is claimed of those that are not below it.
        beyond = [
            one
            for one in beyond
            if not sharing <= set(apart := self._apart(queue, one.queue)) or not outside_common.isdisjoint(apart)
        ]
        if beyond:
            undone = [(queue, kind, -milli) for kind, milli in gain.items()]
            undone += [(giver.queue, *one) for giver in givers for one in giver.charge.items()]
            before, after = self.case.lookup.added_up(undone), Counter(self._used)
            before.update(self._used)
            for line, milli in self._for_growth.items():
                before[line] -= milli
                after[line] -= milli
            claim = _FairClaim(self, step.job, queue, gain, beyond, before, after)
            if not claim.is_lawful_by_value:
                yield from claim.findings()

    def _outside(self, ledger: InsideLedger, queue: QueueName, gain: Charge) -> set[QueueName]:
        """The queues on a path inside whose limits there is too little left."""
        return {
            line.queue
            for gpu_type, milli in gain.items()
            if milli
            for line in self.case.lookup.lines(queue, gpu_type)
            if ledger.left(line) < milli
        }

    def _leave(self, giver: _Giver) -> None:
        for gpu_type, milli in giver.charge.items():
            self._count((giver.queue, gpu_type, -milli))

    def _is_within(self, queue: QueueName, gpu_type: GpuType) -> bool:
        line = QuotaLine(queue, gpu_type)
        return self._used[line] <= self.case.guaranteed.get(line, 0)

    def _apart(self, queue: QueueName, other: QueueName) -> list[QueueName]:
        """The queues on the path of the first that are not on the path of the other, from it up."""
        shared = self.case.lookup.on_path(other)
        return [above.name for above in self.case.lookup.path(queue) if above.name not in shared]

    # All of them.

    def _exchanges(self) -> Iterator[Violation]:
        """S13: at each queue of the tree, and in the cluster, no more leaves than jobs below it get, which alone could ask for it.

        But for the rest of one job for each of them, be that all of it or some of its tasks. Where several tasks, or units of them,
        of a gang are that job, none of them could stay. What leaves for a job may be used by another, which
        would else have had what this one gets: so who could ask for it counts, where those that are named get too little.
        """
        yield from self._exceeding(lambda giver: giver.name)
        if any(True for _ in self._exceeding(lambda giver: giver.part)):
            units = Counter(giver.name for givers in self._givers.values() for giver in givers)
            for name in sorted(vain_shrinks(self.case, EndState(self.case))):
                if units[name] > 1:
                    yield Violation("S13", name, "gives up more than jobs get, and some of that could stay")

    def _exceeding(self, unit_of: Callable[[_Giver], JobName]) -> Iterator[Violation]:
        """Where more leaves than is got, but for the rest of one unit for each who gets something. `unit_of`: what is one."""
        gained, takers = self._gained()
        named = defaultdict[QueueName, Counter[JobName]](Counter)
        able = defaultdict[QueueName | None, Counter[JobName]](Counter)
        for name, givers in self._givers.items():
            for giver in givers if name in self.case.jobs else ():
                named[self.case.jobs[name].spec.queue][unit_of(giver)] += giver.milli
        if all(_is_gpu_for_gpu(units, gained[queue], takers[queue]) for queue, units in named.items()):
            return
        for giver in (giver for givers in self._givers.values() for giver in givers):
            for above in self._and_above(self._reach(giver)):
                able[above][unit_of(giver)] += giver.milli
        for queue, units in able.items():
            if not _is_gpu_for_gpu(units, gained[queue], takers[queue]):
                told = f"{MilliGpu(units.total())} GPUs leave that jobs here alone could ask for"
                yield Violation("S13", queue or "cluster", f"{told}, and these get {MilliGpu(gained[queue])}")

    def _gained(self) -> tuple[Counter[QueueName | None], Counter[QueueName | None]]:
        """What jobs below each queue get in this plan, and for how many of them others leave."""
        gained, takers = Counter[QueueName | None](), Counter[QueueName | None]()
        for step in self.case.placing:
            if step.job not in self.case.moving and not (
                step.job in self.case.bound and step.job in self.case.promised
            ):
                milli, has_givers = sum(self.case.given(step).values()), step.job in self._givers
                for above in self._and_above(self.case.jobs[step.job].spec.queue):
                    gained[above] += milli
                    takers[above] += has_givers
        return gained, takers

    def _and_above(self, queue: QueueName | None) -> Sequence[QueueName | None]:
        """A queue, those above it, and the cluster."""
        if queue not in self._above:
            above = self.case.lookup.path(queue) if queue is not None else ()
            self._above[queue] = (*(known.name for known in above), None)
        return self._above[queue]

    @cached_property
    def _above(self) -> dict[QueueName | None, Sequence[QueueName | None]]:
        return {}

    def _reach(self, giver: _Giver) -> QueueName | None:
        """The highest queue below which jobs could have it leave: it is inside no guarantee between that and its own."""
        part = self.case.parted.jobs.get(giver.part)
        for queue in self.case.lookup.path(giver.queue):
            if part is not None and self.standing.is_inside(part, queue.name):
                return queue.name
        return None


@dataclass(frozen=True)
class _FairClaim:
    """A job that takes from other queues beyond its guarantee. `before` and `after` it: what each line holds."""

    claims: _Claims
    job: JobName
    queue: QueueName
    gain: Charge
    givers: Sequence[_Giver]
    before: Mapping[QuotaLine, int]
    after: Mapping[QuotaLine, int]

    @property
    def is_lawful_by_value(self) -> bool:
        """Whether all that leaves is of a value that its queue takes back, and no more than queues hold above their fair shares."""
        case, leaving = self.claims.case, Counter[QuotaLine]()
        for giver in self.givers:
            said = [known.reclaimed_for for known in case.lookup.path(giver.queue)]
            not_for_shares = next((mode for mode in said if mode), "fair-share") == "guaranteed"
            if not_for_shares or not case.lookup.yields_by_value(case.jobs[giver.name], case.jobs[self.job]):
                return False
            for name in self.claims._apart(giver.queue, self.queue):
                leaving.update({QuotaLine(name, kind): milli for kind, milli in giver.charge.items() if milli})
        for line, milli in leaving.items():
            if self._takes_guarantees_back_alone(line.queue):
                continue
            fair = self.claims._fair.of(line.gpu_type)
            if fair is not None and milli > max(self._held(line.gpu_type, line.queue)) - fair.get(line.queue, 0):
                return False
        return True

    def _takes_guarantees_back_alone(self, name: QueueName) -> bool:
        """Whether neither a queue nor any below it takes anything back for its fair share."""
        case = self.claims.case
        below = [known for known in case.policy.queues if name in case.lookup.on_path(known.name)]
        modes = ([one.reclaim for one in case.lookup.path(known.name)] for known in below)
        said = (next((mode for mode in found if mode), case.policy.scheduling.reclaim) for found in modes)
        return all(mode == "guaranteed" for mode in said)

    def findings(self) -> Iterator[Violation]:
        """S12: it may take for its fair share, from queues above theirs alone, and the least served have more by it."""
        case = self.claims.case
        said = [known.reclaim for known in case.lookup.path(self.queue)]
        if next((mode for mode in said if mode), case.policy.scheduling.reclaim) == "guaranteed":
            yield Violation("S12", self.job, f"takes from {self._names()}, and is not inside its guarantee")
        for giver in self.givers:
            said_there = [known.reclaimed_for for known in case.lookup.path(giver.queue)]
            if next((mode for mode in said_there if mode), "fair-share") == "guaranteed":
                told = (
                    f"takes from {giver.name} for its fair share, and reclaimedFor of queue {giver.queue} is guaranteed"
                )
                yield Violation("S12", self.job, told)
        for gpu_type, milli in self.gain.items():
            fair = self.claims._fair.of(gpu_type) if milli else None
            if fair is not None:
                yield from self._of_type(gpu_type, fair)

    def _of_type(self, gpu_type: GpuType, fair: Mapping[QueueName, int]) -> Iterator[Violation]:
        leaving = defaultdict[QueueName, Counter[JobName]](Counter)
        own, share = self.after[QuotaLine(self.queue, gpu_type)], fair.get(self.queue, 0)
        if own > share:
            told = f"has others leave, and {self.queue} would hold {MilliGpu(own)} {gpu_type}, its fair share is {MilliGpu(share)}"
            yield Violation("S12", self.job, told)
        branches = defaultdict[QueueName | None, set[QueueName]](set)
        for giver in self.givers:
            apart = self.claims._apart(giver.queue, self.queue)
            if giver.charge.get(gpu_type, 0):
                branches[self._above(apart[-1])].add(apart[-1])
            for name in apart:
                leaving[name][giver.name] += giver.charge.get(gpu_type, 0)
        for name, of_jobs in leaving.items():
            spare, milli = max(self._held(gpu_type, name)) - fair.get(name, 0), of_jobs.total()
            if milli and (spare <= 0 or spare < milli - max(of_jobs.values())):
                told = f"{MilliGpu(milli)} {gpu_type} of queue {name} leave for it, which is {MilliGpu(max(0, spare))} above"
                yield Violation("S12", self.job, f"{told} its fair share; the job is beyond its own guarantee")
        for above, givers in branches.items():
            changes = {name: -leaving[name].total() for name in givers}
            changes[self._branch(above)] = self.gain[gpu_type]
            if not any(self._improves(gpu_type, above, fair, changes, reading) for reading in (0, 1)):
                yield Violation("S12", self.job, f"takes from {self._names()}, and the least served have no more by it")

    def _names(self) -> str:
        return ", ".join(sorted({giver.name for giver in self.givers}))

    def _above(self, name: QueueName) -> QueueName | None:
        path = self.claims.case.lookup.path(name)
        return path[1].name if len(path) > 1 else None

    def _branch(self, above: QueueName | None) -> QueueName:
        """The queue right below one, on the path of the job's."""
        return next(
            known.name for known in self.claims.case.lookup.path(self.queue) if self._above(known.name) == above
        )

    def _held(self, gpu_type: GpuType, name: QueueName) -> tuple[int, int]:
        """What a queue holds before this, without and with what starts in the plan."""
        line = QuotaLine(name, gpu_type)
        return self.before.get(line, 0), self.before.get(line, 0) + self.claims._starting[line]

    def _improves(
        self,
        gpu_type: GpuType,
        above: QueueName | None,
        fair: Mapping[QueueName, int],
        changes: Mapping[QueueName, int],
        reading: int,
    ) -> bool:
        beside = self.claims.case.lookup.siblings.get(above, ())
        held = {name: self._held(gpu_type, name)[reading] for name in beside}
        now = sorted(_served(held[name], fair.get(name, 0)) for name in beside)
        return sorted(_served(held[name] + changes.get(name, 0), fair.get(name, 0)) for name in beside) > now


def _is_gpu_for_gpu(units: Counter[JobName], gained: int, takers: int) -> bool:
    """Whether no more leaves than is gained, but for the rest of one unit for each of so many jobs."""
    largest = sorted(filter(None, units.values()), reverse=True)[:takers]
    return units.total() <= gained + sum(milli - 1 for milli in largest)


def _served(held: int, fair: int) -> Fraction:
    """How much of its fair share a queue has."""
    return Fraction(min(held, fair), fair) if fair > 0 else Fraction(1)
