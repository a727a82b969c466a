"""Figures of webhooks for Prometheus, read from the store at the moment of the scrape."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from reconciler.protocols.alerts import AlertDeliveries


@dataclass(frozen=True, slots=True)
class WebhookFigures(Collector):
    """One line for each webhook."""

    deliveries: AlertDeliveries

    def collect(self) -> Iterator[Metric]:
        """Counts since the webhook began, and whether it answers."""
        delivered = CounterMetricFamily(
            "quorate_alerts_delivered", "Events that a webhook has taken.", labels=["webhook"]
        )
        given_up = CounterMetricFamily(
            "quorate_alerts_given_up",
            "Events that a webhook was never told, since it did not answer.",
            labels=["webhook"],
        )
        failing = GaugeMetricFamily(
            "quorate_alert_webhook_failing",
            "1 where the newest try failed or the webhook has stopped.",
            labels=["webhook"],
        )
        for standing in self.deliveries.webhooks():
            delivered.add_metric([standing.webhook], standing.delivered)
            given_up.add_metric([standing.webhook], standing.given_up)
            failing.add_metric([standing.webhook], standing.failing_since is not None)
        yield from (delivered, given_up, failing)
