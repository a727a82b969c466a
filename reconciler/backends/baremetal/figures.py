"""How well agents are heard, as figures for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from reconciler.backends.baremetal.fleet import Fleet


@dataclass(frozen=True, eq=False)
class FleetFigures(Collector):
    """Read at the moment of the scrape. While another control plane leads, agents talk to that one: none is connected here."""

    fleet: Fleet

    def collect(self) -> Iterator[Metric]:
        """How many agents are connected, and for how long the quietest of them has said nothing."""
        silences = self.fleet.silences_s()
        yield GaugeMetricFamily("quorate_agents_connected", "Agents that are connected.", value=len(silences))
        lag = GaugeMetricFamily(
            "quorate_agents_silent_seconds", "For how long the quietest of the connected agents has said nothing."
        )
        if silences:
            lag.add_metric([], max(silences))
        yield lag
