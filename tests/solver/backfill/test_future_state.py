"""The world ahead: what is followed from instant to instant is what a new count finds; a round is cut short where nobody starts."""

from __future__ import annotations

from unittest.mock import patch

import msgspec
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from solver.backfill.future_state import FutureState
from solver.capacity.free_capacity import FreeCapacity
from solver.model.cluster import GpuType
from solver.model.quantities import Duration, Instant, MilliGpu
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import JobName, QueueName
from solver.placement.capacity_prefilter import CapacityPrefilter
from solver.plan.estimates import EarliestStart
from solver.policy.policy import Policy, Queue, Quota, Reservations, SchedulingPolicy, policy_of
from solver.queueing.demand import StartCandidate
from solver.quota.entitlement import inside_lines
from solver.simulation.greedy_rounds import GreedyRounds
from tests.drawn import worlds
from tests.solver.backfill.reserved_worlds import reserved_worlds
from tests.solver.capacity.test_offers import WORLDS, Held, act, room_in
from tests.solver.round.test_against_brute_force import candidates_of
from tests.solver.round.test_forecast import HOUR, forecasts, running
from tests.solver.round.test_mig import partitioned
from tests.solver.worlds import job, node

FAR = Duration(10_000 * 3_600_000)


def enough(candidate: StartCandidate, room: FreeCapacity, *, fresh: bool) -> bool:
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
@given(st.one_of(WORLDS, partitioned()), st.data())
def test_who_finds_gpus_enough_is_followed(world: tuple[Snapshot, Policy], draw: st.DataObject) -> None:
    candidates, _ = candidates_of(*world)
    room, ways = room_in(*world)
    if not candidates:
        return
    followed, held = {fresh: CapacityPrefilter(candidates, room, fresh=fresh) for fresh in (False, True)}, Held()
    for _ in range(4):
        for fresh, known in followed.items():
            assert known.now() == [candidate for candidate in candidates if enough(candidate, room, fresh=fresh)]
        act(draw, room, ways, held)


def played(snapshot: Snapshot, policy: Policy) -> list[tuple[Instant, list[JobName]]]:
    """Who starts when, if everybody runs to the limit."""
    world, found = GreedyRounds.of(snapshot, policy).world, []
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
    with patch.object(FutureState, "_lets_any_start", return_value=True):
        assert played(*world) == found


def test_whom_quota_keeps_out_does_not_keep_those_behind_from_starting() -> None:
    """Both find a GPU that is free after an hour; the first in the order would break its queue's max."""
    full = Queue(QueueName("a"), quota=(Quota(GpuType("H100"), max=MilliGpu.gpus(1)),))
    held = [running("for-ever", "n1", 1, 0)]
    ends = msgspec.structs.replace(running("ends", "n2", 2, 1), spec=job("ends", "b", 1, 2).spec)
    waiting = [job("kept-out", "a", 1, 1), job("starts", "b", 1, 1, submitted=1)]
    world = snapshot_of(Instant(HOUR // 2), (node("n1", 1), node("n2", 2)), [*held, ends, *waiting])
    alone = SchedulingPolicy(reservations=Reservations(0))
    told = forecasts(world, policy_of((full, Queue(QueueName("b"))), scheduling=alone))
    assert told["starts"] == EarliestStart(Instant(HOUR))
    assert told["kept-out"] != EarliestStart(Instant(HOUR))
