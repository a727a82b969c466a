"""How far a control plane of pods follows its cluster, as figures for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from reconciler.model.watch_status import FollowedKind


class WatchStatus(Protocol):
    """A follower of kinds of objects. Any thread may ask."""

    def followed(self) -> tuple[FollowedKind, ...]:
        """How far each kind is followed; none before it has begun."""


@dataclass(frozen=True, slots=True)
class FollowedFigures(Collector):
    """Figures for Prometheus, read at the moment of the scrape; kinds that the server does not have are left out."""

    of: WatchStatus

    def collect(self) -> Iterator[Metric]:
        """By kind."""
        objects = GaugeMetricFamily("quorate_followed_objects", "Objects that are known, by kind.", labels=["kind"])
        silent = GaugeMetricFamily(
            "quorate_followed_silent_seconds",
            "For how long the API server has said nothing of a kind.",
            labels=["kind"],
        )
        breaks = CounterMetricFamily(
            "quorate_followed_breaks", "How often the watch of a kind had to be taken up again.", labels=["kind"]
        )
        late = GaugeMetricFamily(
            "quorate_followed_behind", "1 where what is known of a kind may be old.", labels=["kind"]
        )
        for kind in self.of.followed():
            if kind.is_absent:
                continue
            objects.add_metric([kind.kind], kind.objects)
            breaks.add_metric([kind.kind], kind.breaks)
            late.add_metric([kind.kind], kind.is_behind)
            if kind.silent_s is not None:
                silent.add_metric([kind.kind], kind.silent_s)
        yield from (objects, silent, breaks, late)
