"""What a control plane says of its clock."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import structlog
from structlog.testing import capture_logs

from reconciler.control.metrics import Metrics
from reconciler.control.runner import LoopStatus
from reconciler.model.cluster_clock import ClusterClock
from reconciler.protocols.rounds import RoundSummary
from reconciler.server.reporter import Reporter
from solver.model.quantities import Instant

BEGAN = Instant.parse("2026-11-29T10:00:00Z")
BACK = "the clock was set back by 1h: time limits, waiting times and past use are off by that"
FORWARD = "the clock was set forward by 1h: time limits, waiting times and past use are off by that"
NEARER = "what runs and waits counts on as time passes, and comes nearer to it by 1% of that"
HOUR_MS = 3_600_000


@dataclass
class TwoClocks:
    """Implements Clock: a wall clock that can be set, and one that can't."""

    wall: Instant = BEGAN
    monotonic: float = 7.0

    def now(self) -> Instant:
        return self.wall

    def monotonic_s(self) -> float:
        return self.monotonic

    def passes(self, seconds: float, stepped_ms: int = 0) -> None:
        self.wall, self.monotonic = self.wall.after(int(seconds * 1_000) + stepped_ms), self.monotonic + seconds


@pytest.mark.parametrize(
    ("stepped_ms", "told"), [(0, []), (-900, []), (900, []), (-HOUR_MS, [BACK]), (HOUR_MS, [FORWARD])]
)
def test_a_clock_that_is_set_is_told_once(stepped_ms: int, told: list[str]) -> None:
    clock = TwoClocks()
    reporter = Reporter(Metrics(), structlog.get_logger(), clock)
    with capture_logs() as lines:
        clock.passes(30, stepped_ms)
        reporter.hear(LoopStatus())
        clock.passes(7_200)  # however long it rests
        reporter.hear(LoopStatus())
    assert [line["message"] for line in lines if line["event"] == "clock-stepped"] == told


def test_where_jobs_do_not_count_by_it_that_is_told_too() -> None:
    wall = TwoClocks()
    reporter = Reporter(Metrics(), structlog.get_logger(), ClusterClock(wall))
    with capture_logs() as lines:
        wall.passes(30, HOUR_MS)
        reporter.hear(LoopStatus())
        reporter.hear(LoopStatus())
    told = [line["message"] for line in lines if line["event"] == "clock-stepped"]
    assert told == [f"the clock was set forward by 1h: {NEARER}"]


@pytest.mark.parametrize(
    ("ahead_ms", "told"),
    [
        (-900, []),
        (HOUR_MS, [f"the clock is 1h ahead of the time that jobs counted by before: {NEARER}"]),
        (-HOUR_MS, [f"the clock is 1h behind the time that jobs counted by before: {NEARER}"]),
    ],
)
def test_a_clock_that_was_set_before_is_told_at_the_start(ahead_ms: int, told: list[str]) -> None:
    wall = TwoClocks()
    with capture_logs() as lines:
        Reporter(Metrics(), structlog.get_logger(), ClusterClock(wall, BEGAN.after(-ahead_ms)))
    assert [line["message"] for line in lines if line["event"] == "clock-stepped"] == told


@pytest.mark.parametrize(("ahead_ms", "told"), [(-5, []), (900, []), (HOUR_MS, [BACK])])
def test_a_clock_that_was_set_back_while_nothing_ran_is_told_at_the_start(ahead_ms: int, told: list[str]) -> None:
    newest = RoundSummary(3, BEGAN.after(ahead_ms), "rev", 0, 0, 0, "optimal", 1.0)
    with capture_logs() as lines:
        Reporter(Metrics(), structlog.get_logger(), TwoClocks(), before=(newest,))
    assert [line["message"] for line in lines if line["event"] == "clock-stepped"] == told
