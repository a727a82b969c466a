"""How jobs are started beside complete rounds: as figures, and as a condition where that has ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from reconciler.api.payloads import Condition
from reconciler.control.narrow_rounds import NarrowRounds

STOPPED: Final = "NarrowRoundsStopped"


@dataclass(frozen=True, eq=False)
class NarrowStarts(Collector):
    """Asked anew each time."""

    narrow: NarrowRounds

    def conditions(self) -> Iterator[Condition]:
        """One, once a start that was decided alone was found to break a rule."""
        if self.narrow.fault:
            message = (
                f"{self.narrow.fault}. Jobs wait for complete rounds until this process is started anew: report it"
            )
            yield Condition(STOPPED, status=True, reason="RuleBroken", message=message)

    def collect(self) -> Iterator[Metric]:
        """Jobs that came, and gangs that ended, by which kind of round they were left to."""
        came = CounterMetricFamily(
            "quorate_arrivals",
            "Jobs that came: started or promised a place alone, or left to complete rounds.",
            labels=["decided"],
        )
        counts = self.narrow.counts
        came.add_metric(["narrow"], counts.started + counts.promised)
        came.add_metric(["complete"], counts.left)
        yield came
        ended = CounterMetricFamily(
            "quorate_ends",
            "Gangs that ended: alone, or by complete rounds, it was decided which jobs get what they held.",
            labels=["decided"],
        )
        ended.add_metric(["narrow"], counts.freed)
        ended.add_metric(["complete"], counts.ends_left)
        yield ended
