"""What queues keep back, in a table that can be checked by hand; and what holds however GPUs are handed out."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.model.cluster import GpuType, Node
from solver.model.quantities import Instant, MilliGpu
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import QueueName, TaskPlacement
from solver.policy.policy import Policy, Queue, policy_of
from solver.policy.tree import QueueTree, QuotaLine
from solver.quota.entitlement import QuotaHeadroom, shares_of
from solver.quota.guarantees import guarantees
from solver.quota.lending import Lending, Weights, lending_of
from solver.round.solve import standing
from tests.drawn import worlds
from tests.solver.worlds import job, node, policies, quota_of, snapshots

H = GpuType("H100")
LEAVES = [QueueName(name) for name in ("left", "r1", "r2")]


def queue(name: str, guaranteed: int, lendable: int | None = None, parent: str | None = None) -> Queue:
    """One that is guaranteed some H100."""
    above = QueueName(parent) if parent else None
    return Queue(QueueName(name), above, (quota_of(H, guaranteed, lendable=lendable),))


ORG = (queue("org", 24, 0), queue("a", 16, 8, "org"), queue("b", 8, None, "org"), queue("other", 8, 6))


@pytest.mark.parametrize(
    ("why", "used", "rooms"),
    [
        ("idle: others have what is lent, and what is kept back above them", {}, {"a": 30, "b": 22, "other": 8}),
        ("use counts against what is kept back first", {"a": 8}, {"a": 22, "b": 22, "other": 8}),
        ("beyond that it takes from what the organisation keeps back", {"a": 12}, {"a": 18, "b": 18, "other": 8}),
        ("a sibling's use leaves what is kept back alone", {"b": 16}, {"a": 14, "b": 6, "other": 8}),
        ("borrowed by a stranger", {"other": 8}, {"a": 24, "b": 16, "other": 0}),
        ("more is lent than may be: only the owners' own is open", {"other": 20}, {"a": 24, "b": 16, "other": 0}),
    ],
)
def test_how_much_each_queue_may_still_take(why: str, used: dict[str, int], rooms: dict[str, int]) -> None:
    tree = QueueTree.of(policy_of(ORG))
    weights = Weights.of(tree, Lending(kept(tree), {H: MilliGpu.gpus(32)}))
    for name, gpus in used.items():
        weights.take(QueueName(name), {H: MilliGpu.gpus(gpus)})
    found = {name: (weights.room(QueueName(name), H) or 0) // 1000 for name in rooms}
    assert found == rooms, why


def kept(tree: QueueTree) -> dict[QuotaLine, int]:
    """What the queues of a tree keep back of 32 H100."""
    world = snapshot_of(Instant(0), [node(f"n{number}", 8) for number in range(4)], [])
    return dict(lending_of(world, tree, guarantees(tree, {H: MilliGpu.gpus(32)})).kept)


@worlds(150)
@given(
    snapshots(held_one_in=1),
    policies(keeping=True),
    st.lists(st.tuples(st.sampled_from(LEAVES), st.integers(0, 3000)), max_size=6),
)
def test_what_is_taken_step_by_step_weighs_the_same_as_at_once(
    snapshot: Snapshot, policy: Policy, taken: list[tuple[QueueName, int]]
) -> None:
    shares = shares_of(snapshot, QueueTree.of(policy))
    headroom = QuotaHeadroom(shares)
    for queue_name, milli in taken:
        before, room = dict(headroom.weights.total), headroom.weights.room(queue_name, H)
        refused = headroom.weights.refused(queue_name, {H: milli})
        headroom.take(queue_name, {H: milli})
        raised = headroom.weights.total.get(H, 0) - before.get(H, 0)
        # Refused is what raises the weight above what there is.
        limit = shares.lending.capacity.get(H, 0)
        assert bool(refused) == (room is not None and raised > 0 and before[H] + raised > limit)
    again = headroom.under(shares).weights
    assert (again.below, again.total) == (headroom.weights.below, headroom.weights.total)


def test_what_a_lost_node_held_is_no_less_there() -> None:
    """Else nobody could start on what is free and lent, for want of GPUs that nobody keeps back."""
    lost: Node = msgspec.structs.replace(node("n1", 8), ready=False)
    task = msgspec.structs.replace(
        job("held", "a", 1, 8),
        phase="running",
        attempt=1,
        placement=(TaskPlacement("worker", 0, lost.name, tuple(gpu.id for gpu in lost.gpus)),),
        started_at=Instant(0),
    )
    world = snapshot_of(Instant(0), [lost, node("n2", 8), node("n3", 8)], [task])
    policy = policy_of((queue("a", 8, 0), queue("other", 0)))
    shares, _ = standing(world, policy)
    assert shares.lending.capacity == {H: MilliGpu.gpus(24)}
    assert QuotaHeadroom(shares).weights.room(QueueName("other"), H) == MilliGpu.gpus(16)
