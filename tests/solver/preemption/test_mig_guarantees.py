"""Guarantees of whole GPUs in pools that may be partitioned or shared: as anywhere, as long as nobody divides a GPU."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.checker.check import violations
from solver.milp.highs import optimise
from solver.model.cluster import DeviceId, MigInstance, NodeName
from solver.model.quantities import Duration, Instant
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import QueueName, TaskPlacement
from solver.plan.plan import Bind, Evict, Grow, Nominate, Plan, Repartition, Shrink
from solver.policy.division import MigChanges, MigGeometry, MigMode, SharingPolicy
from solver.policy.harm import Protection
from solver.policy.policy import Policy, PriorityClass, Queue, SchedulingPolicy, policy_of
from solver.round.solve import solve
from tests.drawn import worlds
from tests.solver.aftermath import applied, victims_gone
from tests.solver.worlds import job, node, policies, quota_of, snapshots

MODELS = {"h100": "H100-80GB", "a100": "A100-80GB"}
HALVES = (MigInstance("3g.40gb", 0), MigInstance("3g.40gb", 4))


def partitioned(policy: Policy, mode: MigMode, changes: MigChanges) -> Policy:
    layouts = ("7x 1g.10gb",) if mode == "bounded" else ()
    mig = tuple(MigGeometry(pool, pool, mode, model, layouts, changes) for pool, model in MODELS.items())
    return policy_of(policy.queues, policy.priority_classes, policy.scheduling, mig=mig)


def shared(policy: Policy) -> Policy:
    parts = SharingPolicy("parts", tuple(MODELS), "mps")
    return policy_of(policy.queues, policy.priority_classes, policy.scheduling, (parts,))


def served(plan: Plan) -> set[tuple[str, ...]]:
    """Who starts, grows, leaves, and is promised something; and which GPUs are changed."""
    found: set[tuple[str, ...]] = set()
    for step in plan.steps:
        if isinstance(step, Bind | Grow | Nominate):
            found.add((type(step).__name__, step.job))
        elif isinstance(step, Evict | Shrink):
            found.add((type(step).__name__, step.job, step.beneficiary or ""))
        elif isinstance(step, Repartition):
            found.add(("Repartition", step.device))
    return found


@worlds(200)
@given(
    snapshots(elastic=True, held_one_in=1),
    policies(),
    st.sampled_from(["fixed", "bounded", "free"]),
    st.builds(MigChanges, st.sampled_from([0, 1, 8]), st.sampled_from(["never", "entitled"])),
    st.booleans(),
)
def test_where_nobody_divides_a_gpu_it_is_decided_as_if_nobody_might(
    world: Snapshot, policy: Policy, mode: MigMode, changes: MigChanges, with_program: bool
) -> None:
    optimiser = optimise if with_program else None
    alone = served(solve(world, policy, optimiser))
    for named in (partitioned(policy, mode, changes), shared(policy)):
        plan = solve(world, named, optimiser)
        assert violations(world, named, plan) == ()
        assert served(plan) == alone


def guaranteeing(gpus: int, mode: MigMode) -> Policy:
    """Queue a is guaranteed so many GPUs, b nothing; nothing protects who runs."""
    queues = tuple(Queue(QueueName(name), quota=(quota_of("H100", most),)) for name, most in (("a", gpus), ("b", 0)))
    plain = PriorityClass("plain", protection=Protection(min_runtime=Duration(0)))
    scheduling = SchedulingPolicy(default_priority_class="plain")
    policy = policy_of(queues, (plain,), scheduling)
    return partitioned(policy, mode, MigChanges(8))


@pytest.mark.parametrize("mode", ["fixed", "bounded", "free"])
def test_a_gpu_that_was_lent_before_its_pool_was_partitioned_does_not_come_back_whole(mode: MigMode) -> None:
    """Somebody runs on it as a whole, and it is declared to be in two halves: nobody is promised what it won't be."""
    made = node("n0", 2, "H100")
    first = msgspec.structs.replace(made.gpus[0], instances=HALVES)
    made = msgspec.structs.replace(made, gpus=(first, made.gpus[1]))
    held = (TaskPlacement("worker", 0, NodeName("n0"), (DeviceId("n0/0"), DeviceId("n0/1"))),)
    lent = msgspec.structs.replace(
        job("lent", "b", 1, 2), phase="running", attempt=1, started_at=Instant(1), placement=held
    )
    for gpus, is_served in ((2, False), (1, True)):
        world = snapshot_of(Instant(3_600_000), [made], [lent, job("owner", "a", 1, gpus)])
        plan = solve(world, guaranteeing(gpus, mode), None)
        assert violations(world, guaranteeing(gpus, mode), plan) == ()
        promised = [step.tasks[0].devices for step in plan.steps if isinstance(step, Nominate)]
        assert promised == ([(DeviceId("n0/1"),)] if is_served else [])


def halved_beside_lent(policy: Policy) -> tuple[Snapshot, Policy]:
    """A node of three GPUs: two are lent, the third is in two halves for nobody; queue a is guaranteed all three."""
    made = node("n0", 3, "H100")
    made = msgspec.structs.replace(made, gpus=(*made.gpus[:2], msgspec.structs.replace(made.gpus[2], instances=HALVES)))
    held = (TaskPlacement("worker", 0, NodeName("n0"), (DeviceId("n0/0"), DeviceId("n0/1"))),)
    lent = msgspec.structs.replace(
        job("lent", "b", 1, 2), phase="running", attempt=1, started_at=Instant(1), placement=held
    )
    return snapshot_of(Instant(3_600_000), [made], [lent, job("owner", "a", 1, 3)]), policy


@pytest.mark.parametrize("mode", ["bounded", "free"])
def test_what_is_partitioned_for_nobody_is_made_whole_once_the_others_have_left(mode: MigMode) -> None:
    world, policy = halved_beside_lent(guaranteeing(3, mode))
    plan = solve(world, policy, None)
    assert violations(world, policy, plan) == ()
    assert served(plan) == {("Evict", "lent", "owner"), ("Nominate", "owner")}
    asked = applied(world, plan)
    waiting = solve(asked, policy, None)
    assert (violations(asked, policy, waiting), waiting.steps) == ((), ())
    gone = victims_gone(asked)
    then = solve(gone, policy, None)
    assert violations(gone, policy, then) == ()
    assert served(then) == {("Bind", "owner"), ("Repartition", "n0/2")}


def test_nobody_leaves_for_what_can_not_be_made_whole() -> None:
    """A fixed pool, and one without changes left: what the others would leave is not enough."""
    policy = guaranteeing(3, "free")
    used_up = msgspec.structs.replace(
        policy, mig=tuple(msgspec.structs.replace(known, changes=MigChanges(0)) for known in policy.mig)
    )
    for named in (used_up, guaranteeing(3, "fixed")):
        world, _ = halved_beside_lent(named)
        plan = solve(world, named, None)
        assert (violations(world, named, plan), served(plan)) == ((), set())
