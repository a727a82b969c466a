"""A GPU that is being partitioned counts as what it is to be, and one that is overdue for nothing new."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from solver.checker.check import violations
from solver.model.cluster import MigInstance
from solver.model.inflight import InFlight, Intent, Repartitioning
from solver.model.quantities import Instant, MilliGpu
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import MigSlot, QueueName, TaskPlacement
from solver.plan.plan import Bind, Plan, Repartition, Withdraw
from solver.policy.division import MigChanges, MigGeometry, MigMode
from solver.policy.policy import Policy, Queue, policy_of
from solver.round.solve import solve
from tests.solver.aftermath import applied
from tests.solver.round.test_mig import LAYOUTS, MODELS, asking, many, partitioned_by
from tests.solver.worlds import job, node


def asked_for(snapshot: Snapshot, plan: Plan, deadline: int) -> Snapshot:
    """The world after a plan's binds, its changes of GPUs being in flight."""
    steps = (step for step in plan.steps if isinstance(step, Repartition))
    asked = (
        Repartitioning(step.node, step.device, 1, Instant(0), Instant(snapshot.time + deadline), step.instances)
        for step in steps
    )
    after = applied(snapshot, plan)
    return msgspec.structs.replace(after, in_flight=msgspec.structs.replace(after.in_flight, repartitions=tuple(asked)))


@st.composite
def wanting(draw: st.DrawFn) -> tuple[Snapshot, Policy]:
    """Whole GPUs, which may be partitioned, and gangs that mostly ask for instances."""
    nodes = [node(f"n{index}", draw(st.integers(1, 2)), "H100") for index in range(draw(st.integers(1, 2)))]
    jobs = []
    for number in range(draw(st.integers(2, 5))):
        known = job(f"job-{number}", draw(st.sampled_from("ab")), draw(st.integers(1, 3)), 1, types=["H100"])
        profile = draw(st.sampled_from([None, "1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb"]))
        devices = draw(st.sampled_from([1, 1, 2, 3]))
        jobs.append(asking(known, profile, devices) if profile else known)
    mode: MigMode = draw(st.sampled_from(["bounded", "bounded", "free"]))
    layouts = LAYOUTS["H100"] if mode == "bounded" else ()
    parts = MigGeometry("parts", "h100", mode, MODELS["H100"], layouts, MigChanges(draw(st.integers(1, 4))))
    return snapshot_of(Instant(1000), nodes, jobs), policy_of(
        (Queue(QueueName("a")), Queue(QueueName("b"))), mig=(parts,)
    )


def starving(snapshot: Snapshot) -> Snapshot:
    """The same with only one of the gangs that wait: the first round leaves the rest to the second."""
    waiting = snapshot.pending[:1]
    return msgspec.structs.replace(
        snapshot, jobs=tuple(known for known in snapshot.jobs if known.phase != "pending" or known in waiting)
    )


@many
@given(wanting())
def test_what_is_in_flight_decides_a_round_as_if_it_were_done(world: tuple[Snapshot, Policy]) -> None:
    whole, policy = world
    plan = solve(starving(whole), policy, None)
    held = {known.name: known for known in applied(starving(whole), plan).jobs}
    late = tuple(held.get(known.name, known) for known in whole.jobs)
    pending = msgspec.structs.replace(asked_for(starving(whole), plan, 1), jobs=late)
    done = msgspec.structs.replace(partitioned_by(pending, plan), in_flight=whole.in_flight)
    pending_plan, done_plan = solve(pending, policy, None), solve(done, policy, None)
    assert violations(pending, policy, pending_plan) == ()
    assert (pending_plan.steps, pending_plan.verdicts) == (done_plan.steps, done_plan.verdicts)


@many
@given(wanting())
def test_nothing_new_is_placed_on_what_is_overdue(world: tuple[Snapshot, Policy]) -> None:
    whole, policy = world
    plan = solve(starving(whole), policy, None)
    held = {known.name: known for known in applied(starving(whole), plan).jobs}
    overdue = msgspec.structs.replace(
        asked_for(starving(whole), plan, 0), jobs=tuple(held.get(known.name, known) for known in whole.jobs)
    )
    lost = {asked.device for asked in overdue.in_flight.repartitions}
    again = solve(overdue, policy, None)
    assert violations(overdue, policy, again) == ()
    used = {gpu for step in again.steps if isinstance(step, Bind) for task in step.tasks for gpu in task.on_gpus}
    assert not used & lost
    assert not {step.device for step in again.steps if isinstance(step, Repartition)} & lost


def test_an_instance_that_is_promised_no_more_is_nobodys() -> None:
    """The promise is too old; in the same round a job that comes first gets the GPU as a whole."""
    instances = tuple(MigInstance("1g.10gb", start) for start in range(7))
    (bare,) = node("n1", 1, "H100").gpus
    divided = msgspec.structs.replace(node("n1", 1, "H100"), gpus=(msgspec.structs.replace(bare, instances=instances),))
    late = asking(job("late", "b", 1, 1, types=["H100"], submitted=1), "1g.10gb")
    slot = MigSlot(bare.id, instances[0], MilliGpu(125))
    task = TaskPlacement("worker", 0, divided.name, (slot.instance.id_on(bare.id),), mig=slot)
    promise = Intent("nominate", late.name, 1, Instant(0), Instant(500), (task,))
    parts = MigGeometry("parts", "h100", "bounded", MODELS["H100"], LAYOUTS["H100"], MigChanges(1))
    policy = policy_of((Queue(QueueName("a")), Queue(QueueName("b"))), mig=(parts,))
    first = job("first", "a", 1, 1, types=["H100"])
    snapshot = snapshot_of(Instant(1000), [divided], [first, late], InFlight((promise,)))
    plan = solve(snapshot, policy, None)
    assert [type(step) for step in plan.steps] == [Withdraw, Repartition, Bind]
    assert violations(snapshot, policy, plan) == ()
