"""What becomes of a world when a plan is acted on."""

from __future__ import annotations

import msgspec

from solver.checker.check import violations
from solver.milp.highs import optimise
from solver.model.inflight import InFlight, Intent, Reservation
from solver.model.parts import without
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job
from solver.plan.plan import Bind, Evict, Grow, Nominate, Plan, Reserve, Shrink, Step, Unreserve, Withdraw
from solver.policy.policy import Policy
from solver.round.solve import solve

ROUNDS_TO_REST = 8


def left_to_do(snapshot: Snapshot, policy: Policy) -> list[Step]:
    """What a world that stands still has not come to in a few rounds, starts left out; whoever was asked has left each time.

    What is given up in one round is free in the next, so rest may take some; never may one undo the other for ever.
    """
    for _ in range(ROUNDS_TO_REST):
        snapshot = victims_gone(applied(snapshot, solve(snapshot, policy, None)))
    return [step for step in solve(snapshot, policy, None).steps if not isinstance(step, Bind)]


def assert_lawful_and_at_rest(snapshot: Snapshot, policy: Policy) -> None:
    """No plan for this world breaks a rule, by greedy or by the program, and if it stands still it comes to rest."""
    for optimiser in (None, optimise):
        assert violations(snapshot, policy, solve(snapshot, policy, optimiser)) == ()
    assert left_to_do(snapshot, policy) == []


def applied(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """Every bind and every growth has come true; who is evicted, or shrinks, has been asked to."""
    now = snapshot.time
    binds = {step.job: step for step in plan.steps if isinstance(step, Bind)}
    evicted = {step.job: step for step in plan.steps if isinstance(step, Evict)}
    settled = {*binds, *(step.job for step in plan.steps if isinstance(step, Withdraw))}
    kept = [intent for intent in snapshot.in_flight.intents if intent.kind != "nominate" or intent.job not in settled]
    stops = [
        Intent(
            "stop", step.job, step.attempt, now, now.after(step.grace), beneficiary=step.beneficiary, purpose="evict"
        )
        for step in evicted.values()
    ]
    stops += [
        Intent("shrink", step.job, step.attempt, now, now.after(step.grace), step.tasks, step.beneficiary)
        for step in plan.steps
        if isinstance(step, Shrink)
    ]
    grown = {step.job: step.tasks for step in plan.steps if isinstance(step, Grow)}
    promises = [
        Intent("nominate", step.job, step.attempt, now, now.after(step.deadline), step.tasks)
        for step in plan.steps
        if isinstance(step, Nominate)
    ]

    def after(job: Job) -> Job:
        if job.name in evicted:
            return msgspec.structs.replace(job, phase="stopping")
        bind = binds.get(job.name)
        if bind is None:
            return msgspec.structs.replace(job, placement=(*job.placement, *grown.get(job.name, ())))
        return msgspec.structs.replace(
            job,
            phase="running",
            attempt=bind.attempt,
            placement=bind.tasks,
            started_at=now,
            time_limit=bind.time_limit,
        )

    reserved = {held.holder: held for held in snapshot.in_flight.reservations}
    for step in plan.steps:
        if isinstance(step, Reserve):
            reserved[step.job] = Reservation(step.job, step.tasks, step.start, step.until)
        elif isinstance(step, Bind | Nominate | Unreserve):
            reserved.pop(step.job, None)
    in_flight = msgspec.structs.replace(
        snapshot.in_flight, intents=(*kept, *stops, *promises), reservations=tuple(reserved.values())
    )
    return snapshot_of(now, snapshot.nodes, map(after, snapshot.jobs), in_flight, snapshot.node_sets)


def victims_gone(snapshot: Snapshot) -> Snapshot:
    """Everybody who was asked to leave has left, and waits again; gangs that were to shrink have."""
    gone = {intent.job for intent in snapshot.in_flight.evictions}
    shrunk = {intent.job: intent.tasks for intent in snapshot.in_flight.intents if intent.kind == "shrink"}

    def after(job: Job) -> Job:
        if job.name not in gone:
            return msgspec.structs.replace(job, placement=without(job.placement, shrunk.get(job.name, ())))
        return msgspec.structs.replace(
            job, phase="pending", placement=(), started_at=None, evicted_at=(*job.evicted_at, snapshot.time)
        )

    intents = tuple(
        intent
        for intent in snapshot.in_flight.intents
        if intent.kind == "nominate" or (intent.job not in gone and intent.kind != "shrink")
    )
    in_flight = InFlight(intents=intents, reservations=snapshot.in_flight.reservations)
    return snapshot_of(snapshot.time, snapshot.nodes, map(after, snapshot.jobs), in_flight, snapshot.node_sets)
