"""Evictions on divided GPUs: rules hold round after round, promises of shares are kept, and nothing is given away twice."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given

from solver.checker.check import violations
from solver.milp.highs import optimise
from solver.model.cluster import DeviceId
from solver.model.quantities import Instant, MilliGpu
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, QueueName, TaskPlacement
from solver.plan.plan import Bind, Evict, Nominate, Plan, Repartition, Withdraw
from solver.policy.division import SharingPolicy, TrustGroup
from solver.policy.policy import Policy, Queue, policy_of
from solver.round.solve import solve
from tests.drawn import worlds
from tests.solver.aftermath import applied, victims_gone
from tests.solver.placement.test_fractions import NODE, part
from tests.solver.worlds import job, policies, quota_of, sharing_policies, snapshots, with_fractions

NOW = Instant(10 * 3_600_000)


@worlds(150)
@given(snapshots().flatmap(with_fractions), policies().flatmap(sharing_policies))
def test_rounds_with_fractions_come_to_rest(snapshot: Snapshot, policy: Policy) -> None:
    for _ in range(20):
        plan = solve(snapshot, policy, None)
        assert violations(snapshot, policy, plan) == ()
        if not plan.steps:
            return
        leaving = applied(snapshot, plan)
        assert violations(leaving, policy, solve(leaving, policy, None)) == ()
        snapshot = victims_gone(leaving)
    raise AssertionError("still busy after 20 rounds")


def both_trust(*queues: str) -> Policy:
    """a is guaranteed the node's first GPU and c its second; in the pool those trust each other that are named."""
    groups = (TrustGroup("both", tuple(map(QueueName, queues))),)
    return policy_of(
        tuple(
            Queue(QueueName(name), quota=(quota_of("H100", guaranteed),))
            for name, guaranteed in (("a", 1), ("b", 0), ("c", 1))
        ),
        sharing=(SharingPolicy("parts", ("h100",), "mps", groups),),
    )


POLICY = both_trust("a", "b")


def running(known: Job, gpu: str, share: int | None) -> Job:
    """The job on one GPU of the node, or on a part of it."""
    part_of_it = (MilliGpu(share), "mps") if share else (None, None)
    held = TaskPlacement("worker", 0, NODE.name, (DeviceId(gpu),), *part_of_it)
    return msgspec.structs.replace(known, phase="running", attempt=1, placement=(held,), started_at=Instant(0))


STAYS = running(part("stays", "a", 500), "n1/0", 500)
BORROWS = running(part("borrows", "b", 500), "n1/0", 500)
ELSEWHERE = running(job("elsewhere", "c", 1, 1), "n1/1", None)
WAITS = part("waits", "a", 500)
WORLD = snapshot_of(NOW, [NODE], [STAYS, BORROWS, ELSEWHERE, WAITS])


def steps(snapshot: Snapshot, policy: Policy = POLICY) -> dict[str, tuple[type, tuple[TaskPlacement, ...]]]:
    """What is done with whom, by a plan that breaks no rule."""
    plan = solve(snapshot, policy, optimise)
    assert violations(snapshot, policy, plan) == ()
    made = [step for step in plan.steps if not isinstance(step, Repartition)]
    return {step.job: (type(step), getattr(step, "tasks", ())) for step in made}


def test_a_promised_share_is_bound_beside_the_one_that_stays() -> None:
    first = steps(WORLD)
    assert {name: kind for name, (kind, _) in first.items()} == {"borrows": Evict, "waits": Nominate}
    leaving = applied(WORLD, solve(WORLD, POLICY, optimise))
    assert steps(leaving) == {}, "whoever was asked to leave still holds its share"
    assert steps(victims_gone(leaving)) == {"waits": (Bind, first["waits"][1])}


def test_what_is_lost_is_counted_in_parts_of_gpus() -> None:
    (evict,) = (step for step in solve(WORLD, POLICY, optimise).steps if isinstance(step, Evict))
    assert evict.gpus == MilliGpu(500)
    restart_s = POLICY.scheduling.evictions.restart_cost / 1000
    assert evict.lost_gpu_s == pytest.approx((NOW / 1000 + restart_s) / 2)


def test_a_promised_share_is_withdrawn_where_neighbours_no_longer_trust_each_other() -> None:
    stays = running(part("stays", "b", 250), "n1/0", 250)
    world = snapshot_of(NOW, [NODE], [stays, running(part("borrows", "b", 500), "n1/0", 500), ELSEWHERE, WAITS])
    gone = victims_gone(applied(world, solve(world, POLICY, optimise)))
    assert steps(gone)["waits"][0] is Bind
    assert steps(gone, both_trust("a"))["waits"][0] is not Bind
    assert any(isinstance(step, Withdraw) for step in solve(gone, both_trust("a"), optimise).steps)


@pytest.mark.parametrize("asks", [500, None])
def test_a_gpu_that_is_promised_is_not_given_to_others_while_its_holder_leaves(asks: int | None) -> None:
    """Neither the rest of a GPU that one job leaves whole, nor the parts of one that is promised whole."""
    preemptor = part("waits", "a", asks) if asks else job("waits", "a", 1, 1)
    holders = (
        [running(job("borrows", "b", 1, 1), "n1/0", None)]
        if asks
        else [running(part(name, "b", 400), "n1/0", 400) for name in ("borrows", "borrows-too")]
    )
    world = snapshot_of(NOW, [NODE], [*holders, ELSEWHERE, preemptor])
    assert steps(world)["waits"][0] is Nominate
    small = msgspec.structs.replace(part("small", "b", 125), submitted_at=NOW)
    leaving = applied(world, solve(world, POLICY, optimise))
    leaving = snapshot_of(leaving.time, leaving.nodes, [*leaving.jobs, small], leaving.in_flight)
    assert steps(leaving) == {}


def over_promised(plan: Plan) -> Plan:
    """Three quarters are promised beside the half that stays."""

    def more(step: Nominate) -> Nominate:
        tasks = tuple(msgspec.structs.replace(task, share=MilliGpu(750)) for task in step.tasks)
        return msgspec.structs.replace(step, tasks=tasks)

    steps = tuple(more(step) if isinstance(step, Nominate) else step for step in plan.steps)
    return msgspec.structs.replace(plan, steps=steps)


def bound_too_soon(plan: Plan) -> Plan:
    """What somebody who leaves still holds is given, not promised."""

    def bound(step: Nominate) -> Bind:
        return Bind(step.job, step.attempt, step.tasks, POLICY.scheduling.start_deadline)

    steps = tuple(bound(step) if isinstance(step, Nominate) else step for step in plan.steps)
    return msgspec.structs.replace(plan, steps=steps)


@pytest.mark.parametrize("spoil", [over_promised, bound_too_soon])
def test_the_checker_counts_who_stays_and_who_still_leaves(spoil: object) -> None:
    plan = solve(WORLD, POLICY, optimise)
    assert violations(WORLD, POLICY, plan) == ()
    assert callable(spoil)
    found = [violation for violation in violations(WORLD, POLICY, spoil(plan)) if violation.rule == "S1"]
    assert "of itself" in found[0].problem
