"""Counting says of plain preemptors what seeking a place would say, so that one is sought only for the victims that are chosen."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given

from hack.rounds.world import World
from solver.capacity.free_capacity import FreeCapacity
from solver.model.quantities import Instant
from solver.model.shape import Shape
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName, JobSpec, QueueName, TaskGroup, TaskPlacement
from solver.placement.placement import place
from solver.plan.plan import Evict, Nominate, Plan
from solver.policy.policy import Policy, Queue, SchedulingPolicy, policy_of
from solver.preemption.attempts import Attempts
from solver.preemption.counting import says_it_all
from solver.preemption.fewest import Fewest
from solver.preemption.trial import PlacementRequest, PreemptionResult
from solver.round.solve import solve
from tests.drawn import first, worlds
from tests.solver.preemption.test_least_harm import CLASSES, GPU_TYPE, contended
from tests.solver.worlds import HOUR_MS, job, node, quota_of

WORLDS = [World(512, 300, full, seed) for full, seed in ((0.93, 1), (0.99, 2), (0.99, 3))]


@worlds(300)
@given(contended())
def test_counting_and_seeking_a_place_find_victims_that_do_the_same_harm(drawn: tuple[Snapshot, Policy, Job]) -> None:
    snapshot, policy, _ = drawn
    with patch("solver.preemption.fewest.can_count", lambda *_: False):
        by_trying = solve(snapshot, policy, None)
    assert leaving(solve(snapshot, policy, None)) == leaving(by_trying)


def test_a_place_is_sought_once_for_all_who_leave() -> None:
    """64 that hold one GPU each leave for one that needs all of them: each is needed, and none is tried by itself."""
    snapshot, policy = held_by_many(64)
    tried = 0
    attempt = Attempts.attempt

    def counted(*arguments: object, **named: object) -> object:
        nonlocal tried
        tried += 1
        return attempt(*arguments, **named)  # type: ignore[arg-type]

    with patch.object(Attempts, "attempt", counted):
        plan = solve(snapshot, policy, None)
    assert len(leaving(plan)) == 64
    assert tried <= 4


def leaving(plan: Plan) -> set[JobName]:
    """Who is asked to leave."""
    return {step.job for step in plan.steps if isinstance(step, Evict)}


def held_by_many(count: int) -> tuple[Snapshot, Policy]:
    """Nodes of 8 GPUs, each of them held by a job of `left`, and a gang of `owner` that waits for them all."""
    nodes = [node(f"n{number}", 8, GPU_TYPE) for number in range(count // 8)]
    shape = Shape(1)
    held = [
        Job(
            JobName(f"held-{gpu.id.replace('/', '-')}"),
            Instant(-HOUR_MS),
            JobSpec(QueueName("left"), (TaskGroup("worker", 1, shape),), "low"),
            phase="running",
            attempt=1,
            started_at=Instant(-HOUR_MS),
            placement=(TaskPlacement("worker", 0, on.name, (gpu.id,)),),
        )
        for on in nodes
        for gpu in on.gpus
    ]
    queues = (Queue(QueueName("owner"), quota=(quota_of(GPU_TYPE, count),)), Queue(QueueName("left")))
    policy = policy_of(queues, CLASSES, SchedulingPolicy("low", reclaim="guaranteed"))
    return snapshot_of(Instant(0), nodes, [*held, job("taker", "owner", count // 8, 8)]), policy


@pytest.mark.parametrize("world", first(2, WORLDS), ids=str)
def test_those_are_not_tried_who_free_nothing_that_the_taker_could_use(world: World) -> None:
    """Preemptors of parts of GPUs, for whom a place is sought in each trial; plans are those of all who leave being tried."""
    plan, given_back = tried_in(world)
    with patch.object(
        Fewest, "_mattering", lambda self, _: np.ones(len(self.attempts.evictable.countable), dtype=bool)
    ):
        expected, more = tried_in(world)
    assert sorted(plan.steps, key=repr) == sorted(expected.steps, key=repr)
    assert plan.verdicts == expected.verdicts
    assert given_back < more


@pytest.mark.parametrize("world", first(2, WORLDS), ids=str)
def test_who_fits_as_it_is_is_placed_once_and_nothing_is_undone(world: World) -> None:
    claimed = sought = undone = 0
    claim, trying = Attempts.claim, FreeCapacity.trying

    def claiming(attempts: Attempts, request: PlacementRequest, room: FreeCapacity) -> PreemptionResult | None:
        nonlocal claimed, sought, undone
        by_counting = says_it_all(request, room)
        with (
            patch("solver.preemption.attempts.place", wraps=place) as placing,
            patch.object(FreeCapacity, "trying", autospec=True) as tried,
        ):
            tried.side_effect = trying
            found = claim(attempts, request, room)
        if found and by_counting:
            claimed += 1
            sought += placing.call_count
            undone += tried.call_count
        return found

    with patch.object(Attempts, "claim", claiming):
        plan = solve(world.snapshot, world.policy, None)
    promised = {step.job for step in plan.steps if isinstance(step, Nominate)}
    assert claimed >= len(promised) / 4
    assert (sought, undone) == (claimed, 0)


def tried_in(world: World) -> tuple[Plan, int]:
    """The plan, and how often a task was looked at as if it had left."""
    given_back = 0
    give_back = FreeCapacity.give_back

    def counted(*arguments: object) -> None:
        nonlocal given_back
        given_back += 1
        give_back(*arguments)  # type: ignore[arg-type]

    with patch.object(FreeCapacity, "give_back", counted):
        plan = solve(world.snapshot, world.policy, None)
    return plan, given_back
