"""What is kept: the newest, one in each span, what is needed; never is the last good one given up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.lifecycle.checkpoints.retention import counts, expired_checkpoints
from reconciler.model.checkpoint_policy import CheckpointPolicy, CheckpointRetention
from reconciler.model.checkpoint_record import CheckpointKey, CheckpointRecord, CheckpointState
from solver.model.quantities import Duration, Instant, Memory
from tests.reconciler.lifecycle.checkpoints.storages import JOB

HOUR = 3_600_000
NOW = Instant(1000 * HOUR)


def history(*states: CheckpointState, hours_apart: int = 1) -> tuple[CheckpointRecord, ...]:
    """Newest first, the newest as old as two others are apart."""
    return tuple(
        CheckpointRecord(
            JOB,
            1,
            1000 - place,
            "p",
            f"u{place}",
            1,
            Memory(1),
            "d",
            NOW.after(-(place + 1) * hours_apart * HOUR),
            state=state,
        )
        for place, state in enumerate(states)
    )


def gone(
    checkpoints: tuple[CheckpointRecord, ...], retention: CheckpointRetention, *needed: int, verify: bool = True
) -> list[int]:
    """The places of those that go."""
    policy = CheckpointPolicy("p", "file:///c", retention=retention, verify=verify)
    keys = {checkpoints[place].key for place in needed}
    return [checkpoints.index(each) for each in expired_checkpoints(checkpoints, policy, keys, NOW)]


V: CheckpointState = "verified"
P: CheckpointState = "published"
C: CheckpointState = "corrupt"
D: CheckpointState = "deleted"


@pytest.mark.parametrize(
    ("states", "places"),
    [
        ((), []),
        ((V, V, V, V), [2, 3]),
        ((P, P, V, V, V), [4]),  # what is not verified yet counts for nothing
        ((P, V, P, C), []),  # one good one is not two
        ((C, V, C, V, C, P), [4, 5]),
        ((P, P, P, P), []),
        ((V, D, D, V, D, V), [5]),
    ],
)
def test_the_newest_that_are_good_stay(states: tuple[CheckpointState, ...], places: list[int]) -> None:
    assert gone(history(*states), CheckpointRetention(keep=2)) == places


def test_without_verification_what_is_whole_counts() -> None:
    assert gone(history(P, P, P), CheckpointRetention(keep=2), verify=False) == [2]


def test_what_a_running_attempt_began_from_stays() -> None:
    assert gone(history(V, V, V, V), CheckpointRetention(keep=1, max_age=Duration(HOUR)), 2) == [1, 3]


def test_one_in_each_span_stays_beside_the_newest() -> None:
    # 1000 hours are a multiple of 4: places 3, 7 and 11 are the oldest of their spans.
    assert gone(history(*[V] * 12), CheckpointRetention(keep=1, keep_every=Duration(4 * HOUR))) == [
        1,
        2,
        4,
        5,
        6,
        8,
        9,
        10,
    ]


def test_age_takes_all_but_the_newest_good_one() -> None:
    rule = CheckpointRetention(keep=9, keep_every=Duration(HOUR), max_age=Duration(2 * HOUR))
    assert gone(history(P, V, V, C, V), rule) == [2, 3, 4]
    assert gone(history(V, V, V), CheckpointRetention(keep=9, max_age=Duration(HOUR // 2))) == [1, 2]


@given(
    st.lists(st.sampled_from(("published", "verified", "corrupt", "deleted")), max_size=12),
    st.builds(
        CheckpointRetention,
        st.integers(1, 4),
        st.none() | st.integers(1, 9).map(lambda hours: Duration(hours * HOUR)),
        st.none() | st.integers(0, 12).map(lambda hours: Duration(hours * HOUR)),
    ),
    st.booleans(),
    st.sets(st.integers(989, 1000)),
)
def test_what_must_stay_stays(
    states: list[CheckpointState], rule: CheckpointRetention, verify: bool, steps: set[int]
) -> None:
    checkpoints = history(*states)
    policy = CheckpointPolicy("p", "file:///c", retention=rule, verify=verify)
    needed = {CheckpointKey(JOB, 1, step) for step in steps}
    leaving = expired_checkpoints(checkpoints, policy, needed, NOW)
    good = [each for each in checkpoints if counts(each, policy)]
    assert not needed & {each.key for each in leaving}
    assert "deleted" not in {each.state for each in leaving}
    assert good[:1] == [each for each in good[:1] if each not in leaving]
    if rule.max_age is None:
        assert set(good[: rule.keep]).isdisjoint(leaving)
    stays = tuple(each for each in checkpoints if each not in leaving)
    assert expired_checkpoints(stays, policy, needed, NOW) == ()
