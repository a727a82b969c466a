"""Waiting lifts a job by bands of order inside its sub-layer, and no further."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given

from solver.model.quantities import Instant
from solver.model.snapshot import Snapshot
from solver.model.workload import QueueName
from solver.policy.policy import Policy, PriorityClass, Queue, policy_of
from solver.queueing.demand import AGE_BANDS_MAX, age_band
from tests.drawn import worlds
from tests.solver.round.test_against_brute_force import candidates_of
from tests.solver.worlds import HOUR_MS, job, policies, snapshots


@pytest.mark.parametrize(
    ("per_hour", "waited_ms", "band"),
    [
        (1.0, 0, 0),
        (1.0, HOUR_MS - 1, 0),
        (1.0, HOUR_MS, 1),
        (0.5, 3 * HOUR_MS, 1),
        (4.0, HOUR_MS // 2, 2),
        (1.0, 8 * HOUR_MS, 8),
        (3600.0, 9_000 * HOUR_MS, 8),
        (0.0, 9_000 * HOUR_MS, 0),
        (1.0, -HOUR_MS, 0),
    ],
)
def test_bands_are_whole_and_at_most_eight(per_hour: float, waited_ms: int, band: int) -> None:
    policy = policy_of((Queue(QueueName("q")),), (PriorityClass("c", aging_per_hour=per_hour),))
    waiting = job("j", "q", 1, 1, submitted=0, priority_class="c")
    assert age_band(waiting, policy, Instant(waited_ms)) == band


@worlds(200)
@given(snapshots(), policies())
def test_a_higher_band_comes_first_and_nobody_new_passes_the_highest(snapshot: Snapshot, policy: Policy) -> None:
    candidates, _ = candidates_of(snapshot, policy)
    for before, after in pairwise(candidates):
        assert before.sub_layer <= after.sub_layer
        if before.sub_layer == after.sub_layer:
            bands = [age_band(known.job, policy, snapshot.time) for known in (before, after)]
            assert bands[0] >= bands[1]
            if bands == [AGE_BANDS_MAX, AGE_BANDS_MAX]:
                assert before.job.submitted_at <= after.job.submitted_at


@worlds(100)
@given(snapshots(), policies())
def test_waiting_never_changes_the_sub_layer(snapshot: Snapshot, policy: Policy) -> None:
    ageless = policy_of(
        policy.queues,
        tuple(msgspec.structs.replace(known, aging_per_hour=0.0) for known in policy.priority_classes),
        policy.scheduling,
    )
    aged, fresh = (
        {known.job.name: known.sub_layer for known in candidates_of(snapshot, own)[0]} for own in (policy, ageless)
    )
    assert aged == fresh
