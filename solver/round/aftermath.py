"""The world in the next round, if nothing else happens: which jobs would then have started only to be evicted, or left in vain.

A job doesn't start on what another waiting job may lawfully take from it in the next round, and a gang doesn't grow on it (DESIGN
section 5, amendment 3). Nor does a job leave that runs again in the next round, where fewer would leave without that (amendment 6).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from solver.model.inflight import InFlight
from solver.model.parts import owner_of, without
from solver.model.quantities import Instant
from solver.model.snapshot import Snapshot, with_jobs
from solver.model.workload import Job, JobName, TaskPlacement
from solver.preemption.planned_evictions import PlannedEviction
from solver.round.regrowth import GangGrowth
from solver.round.tiers import Decision

Disturbance = tuple[JobName, str, int, bool]
"""A task that leaves or moves: of which job, its group, its number, and whether it goes on elsewhere."""


def settled(
    snapshot: Snapshot, decision: Decision, leaving: Iterable[PlannedEviction], grown: Iterable[GangGrowth]
) -> Snapshot:
    """The world once all that a round decided has come true, and nothing else: those that were asked to leave have left.

    Of those that start the first to be submitted start first, each by a moment: no name decides which of them borrows.
    """
    begun = {start.candidate.job.name: start.placed.tasks for start in decision.starts}
    begun |= {promise.job.name: promise.start.placed.tasks for promise in decision.promises}
    begun |= {i.job: i.tasks for i in snapshot.in_flight.nominations}
    in_turn = sorted((job for job in snapshot.jobs if job.name in begun), key=lambda job: job.submitted_at)
    at = {job.name: Instant(snapshot.time + place) for place, job in enumerate(in_turn)}
    planned = {known.job.name: known for known in leaving}
    joining = {growth.job.name: growth.tasks for growth in grown}
    for promise in decision.growth_promises:
        gang = owner_of(promise.job.name)
        joining[gang] = (*joining.get(gang, ()), *promise.start.placed.tasks)
    stopping = {intent.job for intent in snapshot.in_flight.evictions}
    shrinking = {intent.job: intent.tasks for intent in snapshot.in_flight.intents if intent.kind == "shrink"}
    jobs = (
        _after(
            msgspec.structs.replace(job, placement=without(job.placement, shrinking.get(job.name, ()))),
            at.get(job.name, snapshot.time),
            begun.get(job.name),
            planned.get(job.name),
            joining.get(job.name, ()),
            stopping=job.name in stopping,
        )
        for job in snapshot.jobs
        if job.name == owner_of(job.name)
    )
    reservations = tuple(held for held in snapshot.in_flight.reservations if held.holder not in begun)
    after = with_jobs(snapshot, jobs, InFlight(reservations=reservations))
    return msgspec.structs.replace(after, time=Instant(snapshot.time + len(in_turn)))


def _after(
    job: Job,
    now: Instant,
    begun: tuple[TaskPlacement, ...] | None,
    planned: PlannedEviction | None,
    joining: tuple[TaskPlacement, ...],
    *,
    stopping: bool,
) -> Job:
    if planned is not None and planned.moves_to:
        return msgspec.structs.replace(job, placement=planned.moves_to, started_at=now, attempt=job.attempt + 1)
    if begun is not None:
        return msgspec.structs.replace(job, phase="running", placement=begun, started_at=now, attempt=job.attempt + 1)
    if stopping or (planned is not None and planned.whole):
        evicted = (*job.evicted_at, now)
        return msgspec.structs.replace(job, phase="pending", placement=(), started_at=None, evicted_at=evicted)
    placement = without(job.placement, planned.tasks) if planned is not None else job.placement
    return msgspec.structs.replace(job, placement=(*placement, *joining))


def begun_in_vain(
    decision: Decision, grown: Iterable[GangGrowth], leaving: Iterable[PlannedEviction]
) -> dict[JobName, JobName]:
    """Jobs that start in a round, are promised their place or grow, and would leave or shrink in the next one, each with the job
    for which. `leaving`: by the decision of the next round.
    """
    begun, larger = begun_by(decision), {growth.job.name for growth in grown}
    larger |= {owner_of(promise.job.name) for promise in decision.growth_promises}
    return {
        known.job.name: known.beneficiary
        for known in leaving
        if known.job.name in (begun if known.whole else larger) and known.beneficiary is not None and not known.moves_to
    }


def left_in_vain(leaving: Iterable[PlannedEviction], after: Decision) -> tuple[JobName, ...]:
    """Jobs that leave for others and would run again by the decision of the next round, those that lose most first."""
    again = begun_by(after)
    found = [known for known in leaving if known.beneficiary is not None and known.whole and known.job.name in again]
    found.sort(key=lambda known: (-known.lost_gpu_s, known.job.submitted_at))
    return tuple(known.job.name for known in found)


def disturbed(*rounds: Iterable[PlannedEviction]) -> frozenset[Disturbance]:
    """All that leaves or moves in some rounds, task by task."""
    return frozenset(
        (known.job.name, task.group, task.index, bool(known.moves_to))
        for leaving in rounds
        for known in leaving
        for task in known.tasks
    )


def begun_by(decision: Decision) -> frozenset[JobName]:
    """The jobs that start in a round, or are promised their place."""
    starts = (*decision.starts, *(known.start for known in decision.promises))
    return frozenset(start.candidate.job.name for start in starts)
