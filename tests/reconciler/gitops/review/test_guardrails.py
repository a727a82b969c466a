"""What one change may do at most: judged by the guardrails of the base, line by line, and at their exact edges."""

from __future__ import annotations

import pytest

from reconciler.documents.repository import Compiled
from reconciler.gitops.review.guardrails import breaches_of
from reconciler.model.review_findings import (
    Ahead,
    Converging,
    Entitlement,
    JobChange,
    Loss,
    QueueChange,
    Review,
    RevisionReviewed,
)
from solver.model.cluster import GpuType
from solver.model.quantities import Duration, Instant, MilliGpu
from solver.model.workload import JobName, QueueName
from solver.plan.plan import Certificate
from tests.reconciler.documents.repository import POOL, queue, reading

NOW = Instant.parse("2026-11-20T12:00:00Z")
H100 = GpuType("H100")
VISION = QueueName("vision")


def compiled(guardrails: str = "{}", guaranteed: int = 64) -> Compiled:
    return reading(
        {
            "policies/vision.yaml": queue("vision", f"\n  quota:\n    - {{gpuType: H100, guaranteed: {guaranteed}}}"),
            "policies/settings.yaml": f"""
apiVersion: quorate.dev/v1
kind: SchedulingPolicy
metadata: {{name: default}}
spec: {{guardrails: {guardrails}}}
""",
            "cluster-state/big.yaml": POOL,
        }
    ).checked()


def found(
    jobs: tuple[JobChange, ...] = (), queues: tuple[QueueChange, ...] = (), converging: tuple[Converging, ...] = ()
) -> Review:
    side = RevisionReviewed("main", "0" * 40, "", "", "", Certificate("none", (), 0.0, "", 0))
    ahead = Ahead(NOW, 0, 0, True, 0)
    return Review(side, side, "", "", NOW, (), jobs, queues, converging, (), (), (), ahead)


def evicted(name: str, lost_gpu_h: float, lost_before: bool = False) -> JobChange:
    loss = Loss(NOW, Duration(30_000), "converge", MilliGpu.gpus(8), lost_gpu_h)
    return JobChange(JobName(name), VISION, MilliGpu.gpus(8), "runs", "leaves", loss=loss, lost_before=lost_before)


def quota(guaranteed: int, most: int | None = None) -> Entitlement:
    limit = None if most is None else MilliGpu.gpus(most)
    return Entitlement(MilliGpu.gpus(guaranteed), MilliGpu.gpus(guaranteed), limit, MilliGpu(0))


def said(guardrails: str, review: Review, head: Compiled | None = None) -> list[tuple[str, str]]:
    base = compiled(guardrails)
    return [(breach.guardrail, breach.message) for breach in breaches_of(base, head or compiled(), review)]


TWO = found((evicted("a", 1.5), evicted("b", 2.5), evicted("c", 9, lost_before=True)))


@pytest.mark.parametrize(
    ("guardrails", "broken"),
    [
        ("{maxEvictedJobs: 2}", []),
        ("{maxEvictedJobs: 1}", [("maxEvictedJobs", "2 jobs would be evicted, at most 1")]),
        ("{maxEvictedGpuHours: 4}", []),
        (
            "{maxEvictedGpuHours: 3.9}",
            [("maxEvictedGpuHours", "4.0 GPU-hours of work would be lost, at most 3.9")],
        ),
    ],
)
def test_evictions_count_that_the_change_brings_about(guardrails: str, broken: list[tuple[str, str]]) -> None:
    assert said(guardrails, TWO) == broken


@pytest.mark.parametrize(
    ("before", "after", "broken"),
    [
        (quota(64), quota(32), []),
        (quota(64), quota(31), ["queue vision: guaranteed 64 → 31 H100 is a cut by 52 %, at most 50 %"]),
        (quota(0, 64), quota(0, 16), ["queue vision: max 64 → 16 H100 is a cut by 75 %, at most 50 %"]),
        (quota(0, 64), quota(0), []),
        (quota(0), quota(0, 16), []),
        (quota(64, 64), None, ["queue vision: guaranteed 64 → 0", "queue vision: max 64 → 0"]),
        (None, quota(64), []),
    ],
)
def test_the_largest_cut_of_a_quota(before: Entitlement | None, after: Entitlement | None, broken: list[str]) -> None:
    review = found(queues=(QueueChange(VISION, H100, before, after),))
    messages = [message for _, message in said("{maxQuotaCutPercent: 50}", review)]
    assert len(messages) == len(broken)
    assert all(message.startswith(start) for message, start in zip(messages, broken, strict=True))


def test_a_cut_is_shown_at_the_line_of_the_quota() -> None:
    review = found(queues=(QueueChange(VISION, H100, quota(64), quota(1)),))
    (breach,) = breaches_of(compiled("{maxQuotaCutPercent: 50}"), compiled(), review)
    assert breach.origin == "policies/vision.yaml:6"


def test_no_more_is_guaranteed_than_there_is() -> None:
    """Unless it was so already: then the change must not make it worse."""
    assert said("{}", found(), compiled(guaranteed=80)) == []
    over = ("guaranteedWithinCapacity", "1 more H100 would be guaranteed than are declared")
    assert said("{}", found(), compiled(guaranteed=81)) == [over]
    assert said("{guaranteedWithinCapacity: false}", found(), compiled(guaranteed=81)) == []
    assert breaches_of(compiled(guaranteed=82), compiled(guaranteed=81), found()) == ()


@pytest.mark.parametrize(
    ("evicts", "deadline", "broken"),
    [("all", 3_600_000, False), ("all", 3_599_000, True), ("none", None, False)],
)
def test_jobs_above_a_new_max_have_their_time(evicts: str, deadline: int | None, broken: bool) -> None:
    at = None if deadline is None else NOW.after(Duration(deadline))
    over = Converging(VISION, H100, MilliGpu.gpus(16), MilliGpu.gpus(8), evicts, at, None)  # type: ignore[arg-type]
    lowered = found(queues=(QueueChange(VISION, H100, quota(0, 64), quota(0, 16)),), converging=(over,))
    broken_before = found(queues=(QueueChange(VISION, H100, quota(8, 16), quota(4, 16)),), converging=(over,))
    assert bool(said("{minConvergence: 1h}", lowered)) is broken
    assert said("{minConvergence: 1h}", broken_before) == []


def test_the_head_can_not_relax_what_judges_it() -> None:
    strict, relaxed = compiled("{maxEvictedJobs: 0}"), compiled("{maxEvictedJobs: 1000}")
    assert [breach.guardrail for breach in breaches_of(strict, relaxed, TWO)] == ["maxEvictedJobs"]
    assert breaches_of(relaxed, strict, TWO) == ()


def test_guardrails_change_no_round() -> None:
    assert compiled("{maxEvictedJobs: 0}").policy.digest == compiled().policy.digest
