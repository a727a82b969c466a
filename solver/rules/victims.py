"""Who may be evicted for whom: borrowed work, lawful victims in the order of harm, and what protects them for a while.

In each queue and type, at each level, running jobs stand in line (not preemptible first, base priority, start, name): the
prefix that fits in the guarantee is inside, the job that crosses the line straddles it, the rest is borrowed (DESIGN
section 5). Base priority is the class's value: waiting never changes who yields to whom.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Protocol, TypeVar

from solver.rules.entitlement import Charge, Shares, charge_of_tasks
from solver.rules.harm import Protection
from solver.rules.policy import Policy, PriorityClass
from solver.rules.precedence import Precedence
from solver.rules.tree import Line, QueueTree
from solver.world.cluster import GpuType
from solver.world.parts import in_parts, owner_of, place_in_gang
from solver.world.quantities import MILLI_PER_GPU, Duration, Instant, MilliGpu
from solver.world.snapshot import Snapshot
from solver.world.workload import Job, JobName, Phase, QueueName

Standing = Literal["borrowed", "straddles", "inside"]
STANDINGS: tuple[Standing, ...] = ("borrowed", "straddles", "inside")
"""From the least protected up."""
BORROWED, STRADDLES, INSIDE = range(len(STANDINGS))

Standings = Mapping[tuple[JobName, GpuType], Sequence[int]]
"""By holder, and type that it is charged for: where it stands on the line of each queue on its path, as a place in STANDINGS."""

Means = Literal["reclaim", "preempt", "turn", "straddle"]
MEANS: tuple[Means, ...] = ("reclaim", "preempt", "turn", "straddle")
"""In the order of harm: borrowed work of others, in the queue itself work of lower priority and then that whose turn is over, a
gang across a guarantee's line."""

DAY = Duration(86_400_000)


@dataclass(frozen=True, slots=True)
class Holder:
    """A running job and what its queue is charged for it."""

    job: Job
    charge: Charge
    priority_class: PriorityClass

    @property
    def base_priority(self) -> int:
        """What decides who yields inside a queue."""
        return self.priority_class.value

    @property
    def evictable(self) -> bool:
        """Not preemptible work can be taken back only where it was allowed to borrow."""
        return self.priority_class.preemptible or self.priority_class.may_borrow

    @property
    def gpus(self) -> MilliGpu:
        """GPUs of all types."""
        return MilliGpu(sum(self.charge.values()))


@dataclass(frozen=True, slots=True)
class Victim:
    """A holder that may be evicted for a certain taker, and what that costs."""

    holder: Holder
    means: Means
    rank: float
    lost_gpu_s: float

    @property
    def name(self) -> JobName:
        """The job's, or that of a part of it."""
        return self.holder.job.name

    @property
    def harm(self) -> tuple[int, float, float, int, int, str]:
        """Sorts from the least harm: means, base priority among its queue's, or who comes last; lost work, size.

        Of a gang's tasks that cost the same the last leaves first.
        """
        gpus, last_first = self.holder.gpus, -place_in_gang(self.name)
        return MEANS.index(self.means), self.rank, self.lost_gpu_s, gpus, last_first, self.name


def holders_of(
    snapshot: Snapshot, policy: Policy, phases: Collection[Phase] = frozenset[Phase]({"running"})
) -> tuple[Holder, ...]:
    """Every job that runs, or is in another of the phases, and has not been asked to stop or to shrink.

    What a preemptible elastic gang holds beyond its minima are holders of their own, right behind it in every line; but not
    while it grows.
    """
    gpu_types = snapshot.gpu_types
    asked = {(intent.job, intent.attempt) for intent in snapshot.in_flight.intents if intent.kind in ("stop", "shrink")}
    growing = {intent.job for intent in snapshot.in_flight.intents if intent.kind == "grow"}
    found = []
    for job in snapshot.jobs:
        known = policy.priority_class(job)
        if job.phase in phases and known is not None and (job.name, job.attempt) not in asked:
            divisible = known.preemptible and job.phase == "running" and job.name not in growing
            parts = in_parts(job) if divisible else (job,)
            found += [Holder(part, charge_of_tasks(part.placement, gpu_types), known) for part in parts]
    return tuple(found)


def standings(holders: Iterable[Holder], shares: Shares) -> Standings:
    """Where every holder stands.

    From the leaves up: who is inside the guarantee of the queue below comes first, so that what a queue below borrows is borrowed
    above it too, and does not use up what its siblings are guaranteed.
    """
    in_line: dict[Line, list[_InLine]] = defaultdict(list)
    found: dict[tuple[JobName, GpuType], list[int]] = {}
    for holder in sorted(holders, key=_place_in_line):
        for gpu_type, milli in holder.charge.items():
            standing = found[holder.job.name, gpu_type] = list[int]()
            member = _InLine(milli, holder.priority_class.preemptible, standing)
            for line in shares.tree.lines(holder.job.spec.queue, gpu_type):
                in_line[line].append(member)
    for line in sorted(in_line, key=lambda line: (-len(shares.tree.path(line.queue)), line)):
        _stand(sorted(in_line[line], key=_protected_below), shares.guaranteed.get(line, 0))
    return found


class _InLine(NamedTuple):
    """What a holder is charged of one type, and where it stands, from its queue up, as far as that is known."""

    milli: int
    preemptible: bool
    standing: list[int]


def _protected_below(member: _InLine) -> int:
    return -member.standing[-1] if member.standing else -INSIDE


def _place_in_line(holder: Holder) -> tuple[bool, int, int, str, str]:
    job, known = holder.job, holder.priority_class
    return known.preemptible, -known.value, job.started_at or 0, owner_of(job.name), job.name


def _stand(in_line: Iterable[_InLine], guaranteed: int) -> None:
    held = 0
    for milli, preemptible, standing in in_line:
        if held + milli <= guaranteed:
            standing.append(INSIDE)
        elif held < guaranteed and preemptible:
            standing.append(STRADDLES)
        else:
            standing.append(BORROWED)
            if not preemptible:
                # What may not be preempted but may borrow is borrowed as a whole where it crosses the line.
                continue
        held += milli


@dataclass(frozen=True, slots=True)
class Taker:
    """A waiting job for which others may have to leave. `overdue`: nothing may delay its guarantee any longer."""

    job: Job
    base_priority: int
    overdue: bool


@dataclass(frozen=True, slots=True)
class Law:
    """Judges who may be evicted for whom, by the standing that the queues have at the beginning of the round."""

    now: Instant
    tree: QueueTree
    holders: tuple[Holder, ...]
    standing: Standings
    ranks: Mapping[tuple[QueueName, int], int]
    parts: Mapping[JobName, tuple[Holder, ...]]
    restart_cost: Duration
    precedence: Precedence

    @classmethod
    def of(cls, snapshot: Snapshot, policy: Policy, shares: Shares) -> Law:
        """The law as it applies to a snapshot."""
        holders = holders_of(snapshot, policy)
        values: dict[QueueName, set[int]] = defaultdict(set)
        for holder in holders:
            values[holder.job.spec.queue].add(holder.base_priority)
        ranks = {(queue, value): rank for queue, found in values.items() for rank, value in enumerate(sorted(found))}
        parts: dict[JobName, tuple[Holder, ...]] = defaultdict(tuple)
        for holder in holders:
            if owner_of(holder.job.name) != holder.job.name:
                parts[owner_of(holder.job.name)] += (holder,)
        restart_cost = policy.scheduling.evictions.restart_cost
        standing = standings(holders, shares)
        return cls(snapshot.time, shares.tree, holders, standing, ranks, parts, restart_cost, shares.precedence)

    def whole(self, holder: Holder) -> tuple[Holder, ...]:
        """What leaves with a holder: with what a gang can't do without, everything that it holds."""
        return (holder, *self.parts.get(holder.job.name, ()))

    def with_all_parts(self, victims: Sequence[Victim]) -> tuple[Victim, ...]:
        """The victims and what leaves with them."""
        if not self.parts:
            return tuple(victims)
        named = {victim.name for victim in victims}
        return (
            *victims,
            *(
                replace(victim, holder=part, lost_gpu_s=self.lost_gpu_s(part))
                for victim in victims
                for part in self.whole(victim.holder)[1:]
                if part.job.name not in named
            ),
        )

    def standing_on(self, holder: Holder, queues: Iterable[QueueName]) -> Standing:
        """The most protected standing on the lines of these queues, which are on the holder's path."""
        protected, path = self.standings_of(holder), self.tree.path(holder.job.spec.queue)
        return STANDINGS[max((protected[path.index(queue)] for queue in queues if protected), default=BORROWED)]

    def standings_of(self, holder: Holder) -> Sequence[int]:
        """Its standing on the lines of each queue on its path, from its own up, as a place in STANDINGS; [] if it holds nothing."""
        of_types = [self.standing[holder.job.name, gpu_type] for gpu_type in holder.charge]
        return of_types[0] if len(of_types) == 1 else [max(known) for known in zip(*of_types, strict=True)]

    def lost_gpu_s(self, holder: Holder) -> float:
        """What evicting it now throws away, in GPU-seconds."""
        return lost_gpu_s(holder, self.now, self.restart_cost)


def protected(job: Job, protection: Protection, now: Instant) -> bool:
    """Whether a job may not be evicted yet: it runs too short, was evicted too lately, or too often within a day."""
    if job.started_at is None or now < job.started_at.after(protection.min_runtime):
        return True
    lately = [at for at in job.evicted_at if at.after(DAY) > now]
    if protection.evictions_per_day is not None and len(lately) >= protection.evictions_per_day:
        return True
    return bool(job.evicted_at) and now < job.evicted_at[-1].after(protection.cool_down)


def lost_gpu_s(holder: Holder, now: Instant, restart_cost: Duration) -> float:
    """What an eviction throws away, in GPU-seconds: work since the last checkpoint, which a service has not, and starting again.

    Where nobody knows when it saved its work last, it is taken to do so in the intervals that it states.
    """
    return holder.gpus / MILLI_PER_GPU * (unsaved_ms(holder.job, now) + restart_cost) / 1000


def unsaved_ms(job: Job, now: Instant) -> int:
    """For how long what a job has done would be lost if it left now."""
    if job.spec.type == "service":
        return 0
    ran_ms = max(0, now - job.started_at) if job.started_at is not None else 0
    if job.saved_at is not None:
        return min(ran_ms, max(0, now - job.saved_at))
    return ran_ms % job.spec.checkpoint.interval if job.spec.checkpoint else ran_ms


class _Named(Protocol):
    @property
    def name(self) -> JobName: ...


Leaving = TypeVar("Leaving", bound=_Named)


def gangs_first(leaving: Sequence[Leaving]) -> list[Leaving]:
    """From the most harmful down; what a gang can't do without before its other parts, which leave with it."""
    worst_first = list(leaving)[::-1]
    worst_first.sort(key=lambda known: owner_of(known.name) != known.name)
    return worst_first
