"""The world ahead: what is followed from instant to instant is what a new count finds; a round is cut short where nobody starts."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from solver.ahead import World
from solver.between import Between
from solver.enough import Enough
from solver.rules.demand import Candidate
from solver.rules.entitlement import inside_lines
from solver.rules.policy import Policy
from solver.world.quantities import Duration, Instant
from solver.world.room import Room
from solver.world.snapshot import Snapshot
from solver.world.workload import JobName
from tests.drawn import worlds
from tests.solver.reserved_worlds import reserved_worlds
from tests.solver.test_against_brute_force import candidates_of
from tests.solver.test_offers import WORLDS, Held, act, room_in

FAR = Duration(10_000 * 3_600_000)


def enough(candidate: Candidate, room: Room, *, fresh: bool) -> bool:
    """Whether there are slots enough for each group under one of its options, counted one by one."""
    groups = candidate.job.spec.task_groups
    return any(
        all(
            room.offer(shape, gpu_type, fresh=fresh).total >= group.least
            for group, shape, gpu_type in zip(groups, option.shapes, option.gpu_types, strict=True)
        )
        for option in candidate.options
    )


@pytest.mark.thorough
@worlds(150)
@given(WORLDS, st.booleans(), st.data())
def test_who_finds_gpus_enough_is_followed(world: tuple[Snapshot, Policy], fresh: bool, draw: st.DataObject) -> None:
    candidates, _ = candidates_of(*world)
    room, ways = room_in(*world)
    if not candidates:
        return
    followed, held = Enough(candidates, room, fresh=fresh), Held()
    for _ in range(4):
        act(draw, room, ways, held)
        assert followed.now() == [known for known in candidates if enough(known, room, fresh=fresh)]


def played(snapshot: Snapshot, policy: Policy) -> list[tuple[Instant, list[JobName]]]:
    """Who starts when, if everybody runs to the limit."""
    world, found = Between.of(snapshot, policy).world, []
    for at in world.instants(snapshot.time.after(FAR)):
        found.append((at, [start.candidate.job.name for start in world.round(at)]))
        shares = world.shares
        recounted = inside_lines(shares.tree, shares.guaranteed, shares.used)
        assert {line: milli for line, milli in shares.inside.items() if milli} == {
            line: milli for line, milli in recounted.items() if milli
        }
    return found


@pytest.mark.thorough
@worlds(150, suppress_health_check=list(HealthCheck))
@given(reserved_worlds())
def test_nobody_would_start_in_the_rounds_that_are_cut_short(world: tuple[Snapshot, Policy]) -> None:
    found = played(*world)
    with patch.object(World, "_lets_any_start", return_value=True):
        assert played(*world) == found
