"""Figures of nodes' health for Prometheus, read from the store at the moment of the scrape."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from reconciler.lifecycle.health.cap import held_back
from reconciler.protocols.health import NodeHealths


@dataclass(frozen=True, slots=True)
class HealthFigures(Collector):
    """What the cap of the HealthPolicy keeps open, 0 as well: an alert that waits for a figure to appear would miss the first."""

    health: NodeHealths

    def collect(self) -> Iterator[Metric]:
        """One figure."""
        text = "Nodes and GPUs that would be closed for their health, if not too much of their pool were already."
        yield GaugeMetricFamily("quorate_health_held_back", text, value=len(held_back(self.health.all())))
