"""What a reviewer accepted, and whether a fresh plan is within it."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.model.envelope import Envelope, Harm, drift_of
from reconciler.model.review_findings import LOST_DECIMALS, Converging, JobChange, QueueChange, Review
from solver.model.quantities import Duration, MilliGpu
from tests.reconciler.gitops.review.test_guardrails import H100, NOW, VISION, evicted, found, quota

BROKEN = Converging(VISION, H100, MilliGpu.gpus(16), MilliGpu.gpus(8), "preemptible", NOW, None)
LOWERED = QueueChange(VISION, H100, quota(0, 64), quota(0, 16))


def beyond(accepted: Review, fresh: Review) -> list[str]:
    return [drift.what for drift in drift_of(Envelope.of(accepted, 0.0), fresh) if drift.beyond]


ONE = found((evicted("a", 4),))
TWO = found((evicted("a", 4), evicted("b", 1)))


def test_more_than_was_accepted_is_beyond_it_and_less_is_within() -> None:
    assert beyond(TWO, ONE) == beyond(ONE, found()) == []
    assert beyond(ONE, TWO) == ["jobs evicted", "GPU-hours lost"]
    assert beyond(found(), found((evicted("a", 0),))) == ["jobs evicted"]


@pytest.mark.parametrize(
    ("hours", "lost", "what"), [(1, 12, []), (1, 12.1, ["GPU-hours lost"]), (0, 4.1, ["GPU-hours lost"])]
)
def test_work_that_the_same_jobs_have_done_since_is_no_drift(hours: int, lost: float, what: list[str]) -> None:
    """The job has 8 GPUs: in an hour it computes 8 GPU-hours, and loses them as well."""
    fresh = msgspec.structs.replace(found((evicted("a", lost),)), time=NOW.after(Duration(hours * 3_600_000)))
    assert beyond(ONE, fresh) == what


def test_what_is_rounded_otherwise_is_no_drift() -> None:
    """The same three jobs, a moment later: each loses a third of a GPU-second more than the plan has digits for."""
    read, now = (found(tuple(evicted(name, lost) for name in "abc")) for lost in (4.1111, 4.1112))
    assert beyond(read, now) == []
    assert beyond(read, found(tuple(evicted(name, 4.1113) for name in "abc"))) == ["GPU-hours lost"]


def test_a_limit_that_was_kept_when_it_was_read_is_beyond() -> None:
    broken = found(queues=(LOWERED,), converging=(BROKEN,))
    assert beyond(found(queues=(LOWERED,)), broken) == ["max of H100 in queue vision"]
    assert beyond(broken, broken) == beyond(broken, found()) == []
    assert beyond(found(), found(converging=(BROKEN,))) == [], "it was broken before, and not by the change"


JOBS = st.lists(
    st.builds(evicted, st.sampled_from("abcdef"), st.floats(0, 100), st.booleans()), unique_by=lambda job: job.job
)


@given(JOBS, JOBS)
def test_a_plan_is_within_itself_and_what_is_within_can_only_do_less(
    accepted: list[JobChange], fresh: list[JobChange]
) -> None:
    one, other = found(tuple(accepted)), found(tuple(fresh))
    assert beyond(one, one) == []
    if not beyond(one, other):
        assert len(other.evicted_by_change) <= len(one.evicted_by_change)
        rounding = 10**-LOST_DECIMALS * (1 + len(one.evicted_by_change))
        assert Harm.of(other).lost_gpu_h <= Harm.of(one).lost_gpu_h + rounding
