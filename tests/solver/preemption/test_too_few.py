"""Who asks for more than there could be is told so by one count, and plans are as if everything had been looked at for it."""

from __future__ import annotations

from unittest.mock import patch

import msgspec
import pytest

from hack.rounds.world import World
from solver.capacity.free_resources import FreeResources
from solver.model.cluster import MigInstance, Node
from solver.model.quantities import Instant
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import QueueName
from solver.plan.plan import Bind, Plan
from solver.policy.division import MigChanges, MigGeometry
from solver.policy.policy import Policy, Queue, policy_of
from solver.preemption.counting import Counting
from solver.preemption.fewest import Fewest
from solver.round.solve import solve
from tests.drawn import first
from tests.solver.worlds import job, node

WORLDS = [World(512, 300, 0.93, 1), World(512, 300, 0.8, 2), World(1024, 400, 0.8, 3), World(1024, 400, 0.99, 2)]
RACKS = 12


def searching(snapshot: Snapshot, policy: Policy) -> tuple[Plan, int]:
    """The plan, and for how many preemptors it was counted who has to leave until they have room."""
    with patch("solver.preemption.fewest.Counting", wraps=Counting) as counting:
        return solve(snapshot, policy, None), counting.call_count


@pytest.mark.parametrize("world", first(2, WORLDS), ids=str)
def test_nobody_is_asked_to_leave_for_who_lacks_gpus_in_any_case(world: World) -> None:
    plan, searched = searching(world.snapshot, world.policy)
    with patch.object(Fewest, "_lacks_gpus", lambda *_: False):
        expected, often = searching(world.snapshot, world.policy)
    assert (plan.steps, plan.verdicts) == (expected.steps, expected.verdicts)
    assert 0 < searched < 0.7 * often


def partitioned(name: str, rack: str) -> Node:
    """Of its two GPUs one has an instance that nobody uses: it could be made whole."""
    made = node(name, 2, "H100", rack=rack)
    first, second = made.gpus
    cut = msgspec.structs.replace(first, instances=(MigInstance("7g.80gb", 0),))
    return msgspec.structs.replace(made, gpus=(cut, second))


@pytest.mark.parametrize(("gpus", "starts"), [(1, True), (2, False)])
def test_changes_that_do_not_do_for_a_gang_are_counted_once_not_in_each_rack(gpus: int, starts: bool) -> None:
    nodes = [partitioned(f"r{rack}-{number}", f"r{rack}") for rack in range(RACKS) for number in range(2)]
    parts = MigGeometry("parts", "h100", "free", "H100-80GB", changes=MigChanges(1))
    policy = policy_of((Queue(QueueName("a")),), mig=(parts,))
    with patch.object(FreeResources, "_together", autospec=True, side_effect=FreeResources._together) as together:
        plan = solve(snapshot_of(Instant(0), nodes, [job("gang", "a", 2, gpus)]), policy, None)
    assert any(isinstance(step, Bind) for step in plan.steps) == starts
    assert together.call_count < RACKS
