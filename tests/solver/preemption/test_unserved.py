"""Who could not be served is tried again where, and only where, something has opened to it since."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from hack.rounds.world import World
from solver.model.workload import QueueName
from solver.plan.plan import Plan
from solver.preemption.eviction import Preemptor
from solver.preemption.givers import Givers
from solver.preemption.unserved import Unserved
from solver.quota.entitlement import Charge
from solver.quota.victims import PreemptorJob
from solver.round.solve import solve
from tests.drawn import first

WORLDS = [World(512, 300, full, seed) for seed in (1, 2, 3) for full in (0.93, 0.99)]


@pytest.mark.parametrize("world", first(2, WORLDS), ids=str)
def test_plans_are_as_if_everybody_were_tried_in_each_pass(world: World) -> None:
    plan, tried = tried_in(world)
    begin_again = Unserved.begin_again

    def forgetting(self: Unserved) -> None:
        begin_again(self)
        self.begin()

    with patch.object(Unserved, "begin_again", forgetting):
        expected, often = tried_in(world)
    assert (plan.steps, plan.verdicts) == (expected.steps, expected.verdicts)
    assert tried < often


@pytest.mark.parametrize("world", first(2, WORLDS[1:5]), ids=str)
def test_plans_are_as_if_nobody_were_told_beforehand_to_be_outside_its_share(world: World) -> None:
    plan = solve(world.snapshot, world.policy, None)

    def without_end(self: Givers, preemptor: PreemptorJob) -> dict[QueueName, Charge]:
        return {preemptor.job.spec.queue: dict.fromkeys(self.evictable.allocations.gpu_types, 10**12)}

    with patch.object(Givers, "own_at_most", without_end):
        expected = solve(world.snapshot, world.policy, None)
    assert (plan.steps, plan.verdicts) == (expected.steps, expected.verdicts)


def tried_in(world: World) -> tuple[Plan, int]:
    """The plan, and for how many preemptors places were sought."""
    tried = 0
    as_it_is = Preemptor._as_it_is

    def counted(*arguments: object) -> object:
        nonlocal tried
        tried += 1
        return as_it_is(*arguments)  # type: ignore[arg-type]

    with patch.object(Preemptor, "_as_it_is", counted):
        plan = solve(world.snapshot, world.policy, None)
    return plan, tried
