"""What becomes of a world when a plan is acted on."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from solver.model.cluster import DeviceId
from solver.model.inflight import Intent, Repartitioning, Reservation
from solver.model.quantities import Instant
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName
from solver.plan.plan import Bind, Evict, Grow, Nominate, Plan, Repartition, Reserve, Shrink, Unreserve, Withdraw

IN_TIME_MS = 3_600_000
"""By when a GPU that is partitioned anew has become what it is to be: later than anything that is asked of this world."""


def acted_on(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """The world in which every bind and every growth has come true; a job that is evicted, or shrinks, has been asked to."""
    now, binds = snapshot.time, {step.job: step for step in plan.steps if isinstance(step, Bind)}
    evicted = {step.job for step in plan.steps if isinstance(step, Evict)}
    grown = {step.job: step.tasks for step in plan.steps if isinstance(step, Grow)}

    def after(job: Job) -> Job:
        if job.name in evicted:
            return msgspec.structs.replace(job, phase="stopping")
        if job.name in binds:
            return _bound(job, binds[job.name], now)
        if job.name in grown:
            return msgspec.structs.replace(job, placement=(*job.placement, *grown[job.name]))
        return job

    in_flight = msgspec.structs.replace(
        snapshot.in_flight,
        intents=(*_kept_intents(snapshot, plan), *_asked(plan, now)),
        reservations=tuple(_reserved(snapshot, plan).values()),
        repartitions=tuple(_repartitions(snapshot, plan).values()),
    )
    return snapshot_of(now, snapshot.nodes, map(after, snapshot.jobs), in_flight, snapshot.node_sets)


def _bound(job: Job, step: Bind, now: Instant) -> Job:
    return msgspec.structs.replace(
        job, phase="running", attempt=step.attempt, placement=step.tasks, started_at=now, time_limit=step.time_limit
    )


def _kept_intents(snapshot: Snapshot, plan: Plan) -> Iterator[Intent]:
    """All but the promises that are kept, taken back or made anew."""
    settled = {step.job for step in plan.steps if isinstance(step, Bind | Withdraw | Nominate)}
    for intent in snapshot.in_flight.intents:
        if intent.kind != "nominate" or intent.job not in settled:
            yield intent


def _asked(plan: Plan, now: Instant) -> Iterator[Intent]:
    for step in plan.steps:
        if isinstance(step, Evict):
            until, whom = now.after(step.grace), step.beneficiary
            yield Intent("stop", step.job, step.attempt, now, until, beneficiary=whom, purpose="evict")
        elif isinstance(step, Shrink):
            yield Intent("shrink", step.job, step.attempt, now, now.after(step.grace), step.tasks, step.beneficiary)
        elif isinstance(step, Nominate):
            yield Intent("nominate", step.job, step.attempt, now, now.after(step.deadline), step.tasks)


def _reserved(snapshot: Snapshot, plan: Plan) -> dict[JobName, Reservation]:
    reserved = {held.holder: held for held in snapshot.in_flight.reservations}
    for step in plan.steps:
        if isinstance(step, Reserve):
            reserved[step.job] = Reservation(step.job, step.tasks, step.start, step.until)
        elif isinstance(step, Bind | Nominate | Unreserve):
            reserved.pop(step.job, None)
    return reserved


def _repartitions(snapshot: Snapshot, plan: Plan) -> dict[DeviceId, Repartitioning]:
    """What GPUs are to become, as if each were made in time: what is bound on it waits for that by itself."""
    known = {asked.device: asked for asked in snapshot.in_flight.repartitions}
    for step in plan.steps:
        if isinstance(step, Repartition):
            until = Instant(snapshot.time + IN_TIME_MS)
            known[step.device] = Repartitioning(step.node, step.device, 0, snapshot.time, until, step.instances)
    return known
