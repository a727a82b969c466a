"""The Gittins index on lives that can be reckoned by hand, and what history a round is given."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.checker.case import JudgedPlan
from solver.checker.turns import cost
from solver.model.inflight import Ended, InFlight
from solver.model.quantities import Duration, Instant, MilliGpu
from solver.model.snapshot import snapshot_of
from solver.model.workload import JobName, QueueName
from solver.plan.plan import Certificate, Plan
from solver.policy.ordering import OrderBy, Ordering, Turns
from solver.policy.policy import PriorityClass, Queue, SchedulingPolicy, policy_of
from solver.policy.tree import QueueTree
from solver.queueing.costs import near, places_in
from solver.queueing.gittins import Lived, indices
from tests.drawn import worlds
from tests.solver.worlds import job, node

MINUTE = 60_000
DAY = Duration(1440 * MINUTE)
NAMED = SchedulingPolicy("limited")


def test_without_neighbours_who_has_run_least_comes_first() -> None:
    """Nothing is known, so it is expected that a job runs about as long again as it has."""
    short, long = indices([Lived(5 * MINUTE, ended=False)])[0], indices([Lived(500 * MINUTE, ended=False)])[0]
    assert short > 50 * long


def test_whose_neighbours_end_soon_comes_first() -> None:
    quick, slow = Lived(2 * MINUTE, ended=True), Lived(5000 * MINUTE, ended=True)
    fresh = Lived(0, ended=False)
    rates = indices([fresh, quick, quick, quick, *[quick] * 30, *[slow] * 30, slow, slow, slow, fresh])
    assert rates[0] > 50 * rates[1]


def test_the_nearer_neighbour_counts_for_more() -> None:
    quick, slow, fresh = Lived(2 * MINUTE, ended=True), Lived(5000 * MINUTE, ended=True), Lived(0, ended=False)
    near_quick, near_slow = indices([fresh, quick, slow])[0], indices([fresh, slow, quick])[0]
    assert near_quick > near_slow


def test_a_neighbour_that_outlived_the_others_counts_for_as_long_as_it_ran() -> None:
    ended, fresh = Lived(2 * MINUTE, ended=True), Lived(0, ended=False)
    alone, beside = indices([fresh, ended])[0], indices([fresh, ended, Lived(900 * MINUTE, ended=False)])[0]
    assert beside < alone


def test_a_restart_lowers_the_index() -> None:
    running, waiting = Lived(MINUTE, ended=False), Lived(MINUTE, ended=False, setup_ms=MINUTE)
    assert indices([running])[0] > indices([waiting])[0]


def ended_job(place: int, ran_ms: int = MINUTE, gpus: int = 1) -> Ended:
    return Ended(QueueName("q"), MilliGpu.gpus(gpus), Instant(place), JobName(f"e{place:03}"), Duration(ran_ms))


def test_history_is_cut_down_to_forty_places_around_live_jobs() -> None:
    history = [ended_job(place) for place in range(200) if place != 100] + [ended_job(300, gpus=2)]
    kept = near(history, [job("live", "q", 1, 1, submitted=100)])
    assert sorted(known.submitted_at for known in kept) == [*range(60, 100), *range(101, 141)]


LIVES = st.lists(st.tuples(st.integers(0, 9000), st.booleans(), st.sampled_from([1, 2])), min_size=1, max_size=60)


@worlds(60)
@given(LIVES, st.sampled_from(["gittins", "shortest", "least-served"]))
def test_the_checker_reckons_the_same_cost(lives: list[tuple[int, bool, int]], by: OrderBy) -> None:
    history = [ended_job(place, minutes * MINUTE, gpus) for place, (minutes, gone, gpus) in enumerate(lives) if gone]
    jobs = [
        msgspec.structs.replace(job(f"j{place}", "q", 1, gpus, submitted=place), served_gpu_ms=minutes * MINUTE * gpus)
        for place, (minutes, gone, gpus) in enumerate(lives)
        if not gone
    ]
    ordering = Ordering(by, turns=Turns())
    policy = policy_of(
        (Queue(QueueName("q"), ordering=ordering),), (PriorityClass("limited", default_time_limit=DAY),), NAMED
    )
    world = snapshot_of(Instant(MINUTE), [node("n1", 8)], jobs, InFlight(history=tuple(history)))
    case = JudgedPlan.of(world, policy, Plan("", "", (), (), Certificate("none", (), 0, "", 0)))
    places = places_in(world, policy, QueueTree.of(policy))
    assert set(places) == {known.name for known in jobs}
    for known in jobs:
        assert places[known.name].cost == pytest.approx(cost(known, ordering, case), rel=1e-9)
