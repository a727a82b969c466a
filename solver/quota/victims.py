"""Running jobs as victims: what each holds, what its eviction costs in the order of harm, and what protects it for a while.

Base priority is the class's value: waiting never changes who yields to whom.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal, Protocol, TypeVar

import msgspec

from solver.model.cluster import GpuType, NodeName
from solver.model.kept_columns import KeptValues
from solver.model.parts import in_parts, owner_of, place_in_gang
from solver.model.quantities import MILLI_PER_GPU, Duration, Instant, MilliGpu
from solver.model.round_cache import RoundCache
from solver.model.snapshot import Snapshot
from solver.model.workload import Job, JobName, Phase, QueueName
from solver.policy.harm import MEANS, Means, Protection, TimedProtection
from solver.policy.policy import Policy, PriorityClass
from solver.quota.entitlement import Charge, charge_of_tasks
from solver.quota.held_use import NEVER

Standing = Literal["borrowed", "straddles", "inside"]
STANDINGS: tuple[Standing, ...] = ("borrowed", "straddles", "inside")
"""From the least protected up."""
BORROWED, STRADDLES, INSIDE = range(len(STANDINGS))

DAY = Duration(86_400_000)

FOREVER = 2**62
"""After any instant."""


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
    """A holder that may be evicted for a certain preemptor, and what that costs."""

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


@dataclass(frozen=True, slots=True)
class HeldGang:
    """What a job holds, in what can leave by itself: what it can't do without stands first.

    Of each of these: `places`, the number of the task that it is (model/parts); `whole`, whether it has no part of a GPU.
    """

    holders: tuple[Holder, ...]
    places: tuple[int, ...]
    whole: tuple[bool, ...]

    @classmethod
    def of(cls, job: Job, known: PriorityClass, gpu_types: Mapping[NodeName, GpuType], *, divisible: bool) -> HeldGang:
        """What a job of a class holds."""
        parts = in_parts(job) if divisible else (job,)
        return cls(
            tuple([Holder(part, charge_of_tasks(part.placement, gpu_types), known) for part in parts]),
            tuple([place_in_gang(part.name) for part in parts]),
            tuple([holds_whole_gpus(part) for part in parts]),
        )


def holds_whole_gpus(job: Job) -> bool:
    """Whether it has no part of a GPU."""
    return all(task.share is None and task.mig is None for task in job.placement)


def gangs_of(
    snapshot: Snapshot,
    policy: Policy,
    phases: Collection[Phase] = frozenset[Phase]({"running"}),
    kept: RoundCache | None = None,
    otherwise: PriorityClass | None = None,
) -> Iterator[HeldGang]:
    """Every job that runs, or is in another of the phases, and has not been asked to stop.

    What a preemptible elastic gang holds beyond its minima are holders of their own, right behind it in every line; but not
    while it grows. A gang that shrinks stands in line with what it keeps, and is asked for no more meanwhile. `otherwise`: the
    class of those whose own the policy has no more; None: these are left out.
    """
    gpu_types, asked = snapshot.gpu_types, _asked_in(snapshot)

    def gang_of(job: Job) -> HeldGang | None:
        known = policy.priority_class(job) or otherwise
        divisible = known is not None and known.preemptible and job.phase == "running"
        return HeldGang.of(job, known, gpu_types, divisible=divisible) if known is not None else None

    jobs = [job for job in snapshot.jobs if job.phase in phases and (job.name, job.attempt) not in asked["stop"]]
    gangs: KeptValues[Job, HeldGang | None] = KeptValues() if kept is None else kept.lasting("gangs", KeptValues)
    for job, gang in zip(jobs, gangs.of(jobs, gang_of, policy, gpu_types, otherwise), strict=True):
        if gang is None:
            continue
        known = gang.holders[0].priority_class
        if (job.name, job.attempt) in asked["shrink"]:
            stays = msgspec.structs.replace(job, leaves="not", held_by="")
            yield HeldGang.of(stays, known, gpu_types, divisible=False)
        elif (job.name, job.attempt) in asked["grow"]:
            yield HeldGang.of(job, known, gpu_types, divisible=False)
        else:
            yield gang


def _asked_in(snapshot: Snapshot) -> Mapping[str, Collection[tuple[JobName, int]]]:
    """By kind, the attempts that were asked for something."""
    asked = defaultdict[str, set[tuple[JobName, int]]](set)
    for intent in snapshot.in_flight.intents:
        asked[intent.kind].add((intent.job, intent.attempt))
    return asked


def holders_of(
    snapshot: Snapshot,
    policy: Policy,
    phases: Collection[Phase] = frozenset[Phase]({"running"}),
    otherwise: PriorityClass | None = None,
) -> tuple[Holder, ...]:
    """The same, whatever gang they are of."""
    gangs = gangs_of(snapshot, policy, phases, otherwise=otherwise)
    return tuple(chain.from_iterable(gang.holders for gang in gangs))


@dataclass(frozen=True, slots=True)
class PreemptorJob:
    """A waiting job for which others may have to leave. `overdue`: nothing of the policy may delay its guarantee any longer.

    `exceeds`: it asks for more CPU or memory than its GPUs carry. `has_gpus`: it asks for some. `past_budgets`: no
    PodDisruptionBudget may delay its guarantee any longer. `waited`: for as long as it has to before others leave for it.
    `claims_from`: the queue whose guarantee it claims, which that shares with those below it: nobody below that queue leaves for
    the claim but work of its own queue. `below`: it takes, by its value, work of a lower one.
    """

    job: Job
    base_priority: int
    overdue: bool
    exceeds: bool = False
    has_gpus: bool = True
    past_budgets: bool = False
    waited: bool = True
    claims_from: QueueName | None = None
    below: int | None = None

    @property
    def patient(self) -> PreemptorJob:
        """The same as long as what protects others may delay it."""
        return replace(self, overdue=False, past_budgets=False)


def protected(job: Job, protection: Protection, now: Instant) -> bool:
    """Whether a job may not be evicted yet: it runs too short, was evicted too lately, or too often within a day."""
    return now < protected_until(job, protection)


def protected_until(job: Job, protection: Protection) -> int:
    """The instant from which on a job may be evicted, if nothing happens to it until then; FOREVER: none."""
    most, ends = protection.evictions_per_day, [NEVER]
    if job.started_at is None or most == 0:
        return FOREVER
    ends.append(job.started_at.after(protection.min_runtime))
    if most is not None and len(job.evicted_at) >= most:
        ends.append(sorted(job.evicted_at)[-most].after(DAY))
    if job.evicted_at:
        ends.append(job.evicted_at[-1].after(protection.cool_down))
    return max(ends)


@dataclass(frozen=True, slots=True)
class ProtectionEnd:
    """What protects a running job the longest, and until when; None: nobody knows, or for as long as it runs."""

    by: TimedProtection
    until: Instant | None


def protection_end(job: Job, protection: Protection, now: Instant) -> ProtectionEnd | None:
    """When a job may be evicted; None: it may be now."""
    ends = list[ProtectionEnd]()
    runs_for = None if job.started_at is None else job.started_at.after(protection.min_runtime)
    if runs_for is None or now < runs_for:
        ends.append(ProtectionEnd("minRuntime", runs_for))
    if job.evicted_at and now < job.evicted_at[-1].after(protection.cool_down):
        ends.append(ProtectionEnd("coolDown", job.evicted_at[-1].after(protection.cool_down)))
    most, lately = protection.evictions_per_day, [at for at in job.evicted_at if at.after(DAY) > now]
    if most is not None and len(lately) >= most:
        ends.append(ProtectionEnd("evictionsPerDay", lately[-most].after(DAY) if most else None))
    return max(ends, key=lambda end: (end.until is None, end.until or 0), default=None)


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
