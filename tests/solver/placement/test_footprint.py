"""A place is sought once for all who ask the same of nodes, and plans are as if each of them had looked for itself."""

from __future__ import annotations

from collections.abc import Iterable
from unittest.mock import patch

import pytest
from hypothesis import given

from hack.rounds.world import World
from solver.milp import start_decision as decide
from solver.model.snapshot import Snapshot
from solver.model.workload import QueueName
from solver.placement import greedy, views
from solver.plan.plan import Plan
from solver.policy.division import SharingPolicy
from solver.policy.policy import Policy, Queue, policy_of
from solver.queueing.demand import StartCandidate
from solver.quota import options
from solver.quota.options import Option
from solver.round import admission
from solver.round.solve import solve, standing
from tests.drawn import first, worlds
from tests.solver.worlds import CLASSES, quota_of, snapshots, with_fractions

CROWDED = snapshots(nodes_max=4, jobs_max=14, sizes=(1, 2, 4), elastic=True)
OPEN = policy_of(
    tuple(Queue(QueueName(name), quota=(quota_of("H100"), quota_of("A100"))) for name in ("left", "r1", "r2")),
    CLASSES,
    sharing=(SharingPolicy("parts", ("h100", "a100"), "mps"),),
)
"""Room alone decides."""

WORLDS = [World(512, 300, full, seed) for seed in (1, 2) for full in (0.93, 0.99)]


def each_for_itself(snapshot: Snapshot, policy: Policy) -> tuple[Plan, int]:
    """The plan where nobody takes another's word for it that there is no room, and how often a place was sought."""

    def nobody(self: greedy._HandedOut, candidate: StartCandidate, options: Iterable[Option]) -> None:
        """Is told."""

    with patch.object(greedy._HandedOut, "refuse", nobody), patch.object(decide, "footprint_of", lambda *_: object()):
        return counting(snapshot, policy)


def counting(snapshot: Snapshot, policy: Policy) -> tuple[Plan, int]:
    """The plan, and how often a place was sought for a gang by itself."""
    with (
        patch.object(greedy, "place_in_view", wraps=views.place_in_view) as placed,
        patch.object(decide, "fits", wraps=views.fits) as fitted,
    ):
        plan = solve(snapshot, policy, None)
    return plan, placed.call_count + fitted.call_count


@pytest.mark.parametrize("world", first(2, WORLDS), ids=str)
def test_a_place_is_sought_for_half_of_those_who_ask(world: World) -> None:
    plan, sought = counting(world.snapshot, world.policy)
    expected, often = each_for_itself(world.snapshot, world.policy)
    assert (plan.steps, plan.verdicts) == (expected.steps, expected.verdicts)
    assert 2 * sought < often


@worlds(500)
@given(CROWDED | CROWDED.flatmap(with_fractions))
def test_plans_are_as_if_each_had_looked_for_itself(snapshot: Snapshot) -> None:
    plan, expected = solve(snapshot, OPEN, None), each_for_itself(snapshot, OPEN)[0]
    assert (plan.steps, plan.verdicts) == (expected.steps, expected.verdicts)


@pytest.mark.parametrize("world", first(2, WORLDS), ids=str)
def test_options_are_worked_out_once_for_those_who_ask_for_the_same(world: World) -> None:
    asked = {(job.spec.task_groups, world.policy.priority_class(job)) for job in world.snapshot.pending}
    sharing = sum(any(group.shape.is_shared for group in job.spec.task_groups) for job in world.snapshot.pending)
    with patch.object(admission, "options_of", wraps=options.options_of) as worked_out:
        standing(world.snapshot, world.policy)
    assert worked_out.call_count <= len(asked) + sharing < len(world.snapshot.pending)
