"""Rooms ahead: those of any instants in any order are those of a world played through once, and few of them are ever there."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from solver.backfill.capacity_timeline import CapacityTimeline
from solver.capacity.free_capacity import FreeCapacity
from solver.capacity.free_resources import FreeResources
from solver.model.quantities import Duration, Instant
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import QueueName
from solver.plan.plan import Reserve
from solver.policy.policy import Policy, Queue, Quota, policy_of
from solver.round.solve import solve
from solver.simulation.greedy_rounds import GreedyRounds
from tests.drawn import worlds
from tests.solver.backfill.reserved_worlds import reserved_worlds
from tests.solver.round.test_forecast import HOUR, running
from tests.solver.worlds import job, node

FAR = Duration(10_000 * HOUR)


def what_is_free(room: FreeCapacity) -> tuple[object, ...]:
    """All that two rooms of the same nodes may differ in."""
    amounts = room.free_gpus.tolist(), room.free_cpu.tolist(), room.free_memory.tolist()
    return (*amounts, list(room.free_devices), dict(room.shared), room.partitions.copy())


@worlds(60, suppress_health_check=list(HealthCheck))
@given(reserved_worlds(), st.data())
def test_rooms_are_those_of_a_world_played_once(world: tuple[Snapshot, Policy], data: st.DataObject) -> None:
    ahead, now = GreedyRounds.of(*world).world, world[0].time
    until, stops = now.after(FAR), sorted({held.start for held in world[0].in_flight.reservations})
    played = ahead.copy()
    expected = {now: what_is_free(played.room)}
    expected |= {at: what_is_free(played.room) for at in played.instants(until, stops)}
    rooms = CapacityTimeline(ahead, now, until, stops)
    for at in data.draw(st.lists(st.sampled_from(sorted(expected)), max_size=8)):
        assert what_is_free(rooms.at(at)) == expected[at]
    assert what_is_free(ahead.room) == expected[now]


def rooms_made(ends: int) -> int:
    """How many rooms a round makes that reserves for one gang, while so many jobs end one after the other."""
    nodes = [node(f"n{number:02}", 8) for number in range(ends)]
    held = [running(f"r{number:02}", f"n{number:02}", 8, 1 + number) for number in range(ends)]
    policy = policy_of((Queue(QueueName("a"), quota=(Quota(nodes[0].gpu_type),)),))
    snapshot = snapshot_of(Instant(0), nodes, [*held, job("gang", "a", 2, 8)])
    copy, made = FreeResources.copy, 0

    def counted(room: FreeResources) -> FreeResources:
        nonlocal made
        made += 1
        return copy(room)

    with patch.object(FreeResources, "copy", counted):
        plan = solve(snapshot, policy, None)
    assert [step.start for step in plan.steps if isinstance(step, Reserve)] == [Instant(2 * HOUR)]
    return made


def test_no_room_is_kept_for_each_of_the_jobs_that_end() -> None:
    assert rooms_made(40) == rooms_made(4)
