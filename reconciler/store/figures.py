"""How long the store takes, as figures for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client import Histogram
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from reconciler.store.database import Database, TransactionKind

_BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
"""From a read of SQLite's memory to its longest wait for a lock."""


class StoreFigures(Collector):
    """Listens to a database from its making on."""

    def __init__(self, database: Database) -> None:
        self._transactions = Histogram(
            "quorate_store_transaction_seconds",
            "How long transactions of the store took, with waits for connections and locks and what is done between.",
            ["kind"],
            buckets=_BUCKETS_S,
            registry=None,
        )
        for kind in ("read", "write"):
            self._transactions.labels(kind)
        database.timed = self._hear

    def _hear(self, kind: TransactionKind, seconds: float) -> None:
        self._transactions.labels(kind).observe(seconds)

    def collect(self) -> Iterator[Metric]:
        """By kind."""
        yield from self._transactions.collect()
