"""Running elastic gangs grow: into what is free once everything that could start has started, or was promised its room.

Inside guarantees first, then inside fair shares, then into what is left over; never by an eviction. What others give back so that
a gang grows inside its guarantee is settled before (solver/round/growing_gangs).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from solver.model.quantities import MilliGpu
from solver.model.round_cache import RoundCache
from solver.model.shape import Shape
from solver.model.snapshot import Snapshot
from solver.model.workload import Job, JobName, TaskPlacement
from solver.placement.growth import LINES, grow_all
from solver.placement.starts import JobStart, held_by
from solver.policy.policy import Policy
from solver.queueing.demand import StartCandidate
from solver.quota.entitlement import Charge, QuotaHeadroom
from solver.quota.users import UserRoom
from solver.round.growing_gangs import as_start, growing_gangs, held_back_growing, queues_in_line
from solver.round.tiers import Decision


@dataclass(frozen=True, slots=True)
class GangGrowth:
    """A running gang as it will be, with the tasks that join it and what they cost its queue."""

    after: JobStart
    tasks: tuple[TaskPlacement, ...]
    charge: Charge

    @property
    def job(self) -> Job:
        """The gang."""
        return self.after.candidate.job

    @property
    def gpus(self) -> MilliGpu:
        """GPUs that it gets beside what it has."""
        return MilliGpu(sum(task.gpus for task in self.tasks))

    @property
    def held(self) -> Iterator[tuple[TaskPlacement, Shape]]:
        """The tasks that join, each with what it takes."""
        return held_by(self.job.spec, self.after.option, self.tasks)


def growths(
    snapshot: Snapshot,
    policy: Policy,
    candidates: Sequence[StartCandidate],
    decision: Decision,
    standing_back: Collection[JobName] = (),
    kept: RoundCache | None = None,
) -> tuple[GangGrowth, ...]:
    """Which jobs grow after a decided round. `snapshot`: the world in which its victims have been asked to leave.

    `standing_back`: jobs that are not to grow.
    """
    in_line = queues_in_line(candidates, {start.candidate.job.name for start in decision.starts})
    able = [
        (job, (option,))
        for job, option in growing_gangs(snapshot, policy, decision.shares.tree, decision.room, in_line, kept)
        if job.name not in standing_back
    ]
    if not able:
        return ()
    room = decision.room.copy()
    headroom, users = QuotaHeadroom(decision.shares), UserRoom(decision.shares.users)
    decision.take(room)
    given = (*decision.starts, *decision.growth, *(promise.start for promise in decision.nominations))
    for start in given:
        headroom.take(start.queue, start.charge)
        users.take(start.candidate.job, start.charge, start.beside)
    served = {start.candidate.job.name for start in given}
    shares = decision.shares.beside((start.queue, start.charge) for start in given)
    waiting = [candidate for candidate in candidates if candidate.job.name not in served]
    gangs = held_back_growing(able, snapshot, policy, waiting, shares, decision.room)
    before = [as_start(gang) for gang in gangs]
    after = [as_start(gang, decision.growth) for gang in gangs]
    for lines in LINES:
        after = grow_all(after, room, headroom, users, lines)
    return tuple(_growth(old, new) for old, new in zip(before, after, strict=True) if new.tasks != old.tasks)


def _growth(before: JobStart, after: JobStart) -> GangGrowth:
    charge = {gpu_type: milli - before.charge[gpu_type] for gpu_type, milli in after.charge.items()}
    return GangGrowth(after, after.joined(before), charge)


def with_grown(snapshot: Snapshot, grown: Sequence[GangGrowth]) -> Snapshot:
    """The world in which they have what they grow by."""
    if not grown:
        return snapshot
    more = {growth.job.name: growth.tasks for growth in grown}
    jobs = (
        msgspec.structs.replace(job, placement=(*job.placement, *more[job.name])) if job.name in more else job
        for job in snapshot.jobs
    )
    return msgspec.structs.replace(snapshot, jobs=tuple(jobs))
