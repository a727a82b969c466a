"""What decides the rounds of this process, as it was asked for."""

from __future__ import annotations

from structlog.typing import FilteringBoundLogger

from reconciler.control.optimiser import KillableOptimiser
from reconciler.control.round_worker import RoundWorker
from reconciler.model.clock import Clock
from reconciler.server.settings import Settings


def round_worker(
    settings: Settings, optimiser: KillableOptimiser, clock: Clock, log: FilteringBoundLogger
) -> RoundWorker:
    """In this process, or in a worker where the cluster is large. Not started yet; to be closed."""

    def report(message: str) -> None:
        log.warning("optimiser", message=message)

    if settings.round_worker_from is None:
        return RoundWorker(optimiser, clock, report=report)
    return RoundWorker(optimiser, clock, settings.round_worker_from, report=report)
