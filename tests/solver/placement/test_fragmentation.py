"""What fragmentation is, by hand; and that prices and fit put tasks where they leave the rest useful."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given

from solver.capacity.free_capacity import FreeCapacity
from solver.capacity.sharing import sharing_of
from solver.checker.check import violations
from solver.milp.highs import optimise
from solver.milp.optimiser import Effort
from solver.milp.prices import fit_for, prices_of
from solver.model.cluster import DeviceId, GpuType, Node
from solver.model.quantities import Instant, MilliGpu
from solver.model.shape import Shape, SharedShape
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName, QueueName, TaskPlacement
from solver.placement.fit import Fit, Spot
from solver.placement.fragmentation import Expected, ExpectedTask
from solver.plan.plan import Bind
from solver.policy.division import SharingPolicy
from solver.policy.policy import Policy, Queue, policy_of
from solver.policy.tree import QueueTree
from solver.round.solve import solve
from tests.drawn import worlds
from tests.solver.worlds import job, node, policies, sharing_policies, snapshots, with_fractions

H100, A100 = GpuType("H100"), GpuType("A100")
HALF, MOST, WHOLE = ExpectedTask(0, 500, 0, 0, ()), ExpectedTask(0, 810, 0, 0, ()), ExpectedTask(1, 0, 0, 0, ())
POLICY = policy_of((Queue(QueueName("q")),), sharing=(SharingPolicy("parts", ("a100", "h100"), "mps"),))
EFFORT = Effort(0.0, 60.0, 0)


def unusable(expected: Expected, whole: int, *divided: int, cpu: int = 8_000) -> float:
    one = np.array([0])
    return float(
        expected.unusable(one, np.array([cpu]), np.array([0]), np.array([whole]), np.array([divided or (0,)]))[0]
    )


def test_what_is_left_in_pieces_too_small_is_unusable() -> None:
    # 2 whole GPUs, 600 and 300 left: a half can't use the 300, nine tenths can use neither piece, one GPU neither.
    expected = Expected({HALF: 2, MOST: 1, WHOLE: 1}, (H100,))
    assert unusable(expected, 2, 600, 300) == pytest.approx(0.5 * 300 + 0.25 * 900 + 0.25 * 900)


def test_without_the_cores_for_a_task_everything_is_unusable_to_it() -> None:
    expected = Expected({HALF: 1, ExpectedTask(1, 0, 4_000, 0, ()): 1}, (H100,))
    assert unusable(expected, 2, 600, cpu=4_000) == pytest.approx(0.5 * 600)
    assert unusable(expected, 2, 600, cpu=3_999) == pytest.approx(0.5 * 2600)


def test_a_task_that_may_not_use_the_type_can_use_nothing_there() -> None:
    expected = Expected({ExpectedTask(1, 0, 0, 0, (A100,)): 1, WHOLE: 3}, (H100,))
    assert unusable(expected, 2) == pytest.approx(0.25 * 2000)


def test_a_task_of_more_gpus_than_a_node_has_free_can_use_nothing_there() -> None:
    expected = Expected({ExpectedTask(4, 0, 0, 0, ()): 1}, (H100,))
    assert (unusable(expected, 3), unusable(expected, 4)) == (3000, 0)


def part(name: str, milli: int, cpu: int = 0, types: tuple[str, ...] = ()) -> Job:
    known = job(name, "q", 1, 0, types=types, cpu=cpu)
    (group,) = known.spec.task_groups
    shape = msgspec.structs.replace(group.shape, gpu_fraction=MilliGpu(milli))
    groups = (msgspec.structs.replace(group, shape=shape),)
    return msgspec.structs.replace(known, spec=msgspec.structs.replace(known.spec, task_groups=groups))


def running(known: Job, where: str, device: int, share: int | None = None) -> Job:
    task = TaskPlacement(
        "worker",
        0,
        node(where, 1).name,
        (DeviceId(f"{where}/{device}"),),
        MilliGpu(share) if share else None,
        "mps" if share else None,
    )
    return msgspec.structs.replace(known, phase="running", attempt=1, started_at=Instant(0), placement=(task,))


def test_a_scarce_type_is_left_to_those_who_can_use_no_other() -> None:
    # Best fit would fill the smaller node, the only A100. What runs says that others need one.
    nodes = [node("n1", 1, "A100"), node("n2", 2, "H100")]
    bound = [part(f"bound-{number}", 400, types=("A100",)) for number in range(3)]
    plan = solve(snapshot_of(Instant(9), nodes, [part("any", 400), *bound]), POLICY, None)
    assert {step.job: step.tasks[0].node for step in plan.steps if isinstance(step, Bind)}[JobName("any")] == "n2"


def priced(nodes: list[Node], jobs: list[Job]) -> tuple[Fit, FreeCapacity]:
    snapshot = snapshot_of(Instant(9), nodes, jobs)
    sharing = sharing_of(POLICY, QueueTree.of(POLICY), snapshot.nodes)
    room = FreeCapacity.of(snapshot, sharing.domain)
    fit = fit_for(snapshot, room, sharing, POLICY.scheduling.solver, optimise)
    assert fit is not None
    return fit, room


def test_prices_know_that_a_pair_is_worth_more_than_what_is_left_beside_an_odd_part() -> None:
    # Halves and 0.6s are expected. 500 left takes another half; 400 left takes nothing.
    mix = [part(f"half-{number}", 500) for number in range(6)] + [part(f"most-{number}", 600) for number in range(6)]
    fit, _ = priced([node("n1", 8)], mix)
    assert fit.prices.divided[0, 400] == 0
    assert fit.prices.divided[0, 499] == 0
    assert fit.prices.divided[0, 500] > 0
    assert fit.prices.divided[0, 600] >= fit.prices.divided[0, 500]
    assert (np.diff(fit.prices.whole, axis=1) >= 0).all()


def test_a_bundle_kept_whole_is_worth_what_a_large_task_pays() -> None:
    # Eight single GPUs and one node of eight: more tasks of eight wait than single ones, so that breaking the eight costs.
    mix = [job(f"eight-{number}", "q", 1, 8) for number in range(4)] + [
        part(f"half-{number}", 500) for number in range(8)
    ]
    fit, room = priced([node("big", 8), *(node(f"n{number}", 1) for number in range(8))], mix)
    whole = fit.prices.whole[fit.prices.group_of_node[room.index[node("big", 8).name]]]
    assert whole[8] - whole[7] > whole[1] - whole[0]
    assert whole[8] == pytest.approx(8000), "no more than a task of eight is worth"


def test_ties_go_to_the_smallest_node_name() -> None:
    fit, room = priced([node(name, 2) for name in ("n3", "n1", "n2")], [part("a", 500)])
    spot = fit.cheapest(room, [(Shape(1), H100)])
    assert spot is not None
    assert (room.nodes[spot.node].name, spot.left_milli) == ("n1", None)


def test_an_optimiser_without_an_answer_leaves_fragmentation_alone() -> None:
    snapshot = snapshot_of(Instant(9), [node("n1", 2)], [part("a", 500)])
    sharing = sharing_of(POLICY, QueueTree.of(POLICY), snapshot.nodes)
    room = FreeCapacity.of(snapshot, sharing.domain)
    expected = Expected({HALF: 1}, room.gpu_types)
    assert prices_of(room, expected, lambda *_: None, EFFORT) is None
    plan = solve(snapshot, POLICY, lambda *_: None)
    assert [step.job for step in plan.steps if isinstance(step, Bind)] == ["a"]
    assert (
        fit_for(
            snapshot_of(Instant(9), [node("n1", 2)], [job("b", "q", 1, 1)]),
            room,
            sharing,
            POLICY.scheduling.solver,
            None,
        )
        is None
    )


@worlds(150)
@given(snapshots().flatmap(with_fractions), policies().flatmap(sharing_policies))
def test_a_kept_fit_agrees_with_a_fresh_one_and_with_what_fits(snapshot: Snapshot, policy: Policy) -> None:
    """Costs are kept by the state of a node; whatever was taken before, they are those of the room that is asked about."""
    tree = QueueTree.of(policy)
    sharing = sharing_of(policy, tree, snapshot.nodes)
    room = FreeCapacity.of(snapshot, sharing.domain)
    limits = policy.scheduling.solver
    kept = fit_for(snapshot, room, sharing, limits, optimise)
    if kept is None:
        return
    for waiting in snapshot.pending:
        for group in waiting.spec.task_groups:
            for gpu_type in room.gpu_types:
                shape = sharing.served(group.shape, gpu_type, waiting.spec.queue, "standard")
                if isinstance(shape, SharedShape) and not (shape.circles and 0 < shape.milli <= 1000):
                    continue
                if shape.devices > 1:
                    continue  # it is not asked for parts of several GPUs
                found = kept.cheapest(room, [(shape, gpu_type)])
                fresh = Fit.of(kept.expected, kept.prices, room).cheapest(room, [(shape, gpu_type)])
                assert found == fresh
                slots = room.slots(shape, gpu_type)
                assert (found is None) == (not slots.any())
                if found is not None:
                    assert slots[found.node] > 0
                    copied = room.copy()
                    with room.trying():
                        _take(kept, room, found, shape, gpu_type)
                    assert kept.cheapest(room, [(shape, gpu_type)]) == found
                    _take(kept, copied, found, shape, gpu_type)
                    room.take(found.node, shape, 1)


def _take(kept: Fit, room: FreeCapacity, spot: Spot, shape: Shape, gpu_type: GpuType) -> None:
    """Take a place, and look at once for the next."""
    room.take(spot.node, shape, 1)
    fresh = Fit.of(kept.expected, kept.prices, room).cheapest(room, [(shape, gpu_type)])
    assert kept.cheapest(room, [(shape, gpu_type)]) == fresh


@worlds(100)
@given(snapshots().flatmap(with_fractions), policies().flatmap(sharing_policies))
def test_plans_by_price_break_no_rule(snapshot: Snapshot, policy: Policy) -> None:
    assert violations(snapshot, policy, solve(snapshot, policy, optimise)) == ()
