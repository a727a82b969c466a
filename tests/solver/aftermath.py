"""What becomes of a world when a plan is acted on."""

from __future__ import annotations

import msgspec

from solver.checker.check import violations
from solver.milp.highs import optimise
from solver.model.inflight import InFlight
from solver.model.parts import without
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job
from solver.narrow.acted_on import acted_on
from solver.plan.plan import Bind, Plan, Step
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
    """Every bind and every growth has come true; who is evicted, or shrinks, has been asked to. No GPU is partitioned anew yet."""
    after = acted_on(snapshot, plan)
    in_flight = msgspec.structs.replace(after.in_flight, repartitions=snapshot.in_flight.repartitions)
    return msgspec.structs.replace(after, in_flight=in_flight)


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
