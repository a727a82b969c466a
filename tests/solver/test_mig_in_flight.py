"""A GPU that is being partitioned counts as what it is to be, and one that is overdue for nothing new."""

from __future__ import annotations

import msgspec
from hypothesis import given

from solver.plan.check import violations
from solver.plan.plan import Bind, Plan, Repartition
from solver.rules.policy import Policy
from solver.solve import solve
from solver.world.inflight import Repartitioning
from solver.world.quantities import Instant
from solver.world.snapshot import Snapshot
from tests.solver.aftermath import applied
from tests.solver.test_mig import many, partitioned, partitioned_by


def asked_for(snapshot: Snapshot, plan: Plan, deadline: int) -> Snapshot:
    """The world after a plan's binds, its changes of GPUs being in flight."""
    steps = (step for step in plan.steps if isinstance(step, Repartition))
    asked = (
        Repartitioning(step.node, step.device, 1, Instant(0), Instant(snapshot.time + deadline), step.instances)
        for step in steps
    )
    after = applied(snapshot, plan)
    return msgspec.structs.replace(after, in_flight=msgspec.structs.replace(after.in_flight, repartitions=tuple(asked)))


def starving(snapshot: Snapshot) -> Snapshot:
    """The same with only every other gang that waits, so that the first round leaves something for the second."""
    waiting = snapshot.pending[::2]
    return msgspec.structs.replace(
        snapshot, jobs=tuple(job for job in snapshot.jobs if job.phase != "pending" or job in waiting)
    )


@many
@given(partitioned())
def test_what_is_in_flight_decides_a_round_as_if_it_were_done(world: tuple[Snapshot, Policy]) -> None:
    whole, policy = world
    plan = solve(starving(whole), policy, None)
    held = {job.name: job for job in applied(starving(whole), plan).jobs}
    late = tuple(held.get(job.name, job) for job in whole.jobs)
    pending = msgspec.structs.replace(asked_for(starving(whole), plan, 1), jobs=late)
    done = msgspec.structs.replace(partitioned_by(pending, plan), in_flight=whole.in_flight)
    pending_plan, done_plan = solve(pending, policy, None), solve(done, policy, None)
    assert violations(pending, policy, pending_plan) == ()
    assert (pending_plan.steps, pending_plan.verdicts) == (done_plan.steps, done_plan.verdicts)


@many
@given(partitioned())
def test_nothing_new_is_placed_on_what_is_overdue(world: tuple[Snapshot, Policy]) -> None:
    whole, policy = world
    plan = solve(starving(whole), policy, None)
    held = {job.name: job for job in applied(starving(whole), plan).jobs}
    overdue = msgspec.structs.replace(
        asked_for(starving(whole), plan, 0), jobs=tuple(held.get(job.name, job) for job in whole.jobs)
    )
    lost = {asked.device for asked in overdue.in_flight.repartitions}
    again = solve(overdue, policy, None)
    assert violations(overdue, policy, again) == ()
    used = {
        task.mig.gpu if task.mig else device
        for step in again.steps
        if isinstance(step, Bind)
        for task in step.tasks
        for device in task.devices
    }
    assert not used & lost
    assert not {step.device for step in again.steps if isinstance(step, Repartition)} & lost
