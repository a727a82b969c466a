"""What decides the rounds of this process, as it was asked for."""

from __future__ import annotations

from contextlib import ExitStack

from structlog.typing import FilteringBoundLogger

from reconciler.control.optimiser import KillableOptimiser
from reconciler.control.round_worker import RoundWorker
from reconciler.model.clock import Clock
from reconciler.server.settings import Settings


def round_worker(settings: Settings, clock: Clock, log: FilteringBoundLogger, closing: ExitStack) -> RoundWorker:
    """In this process, or in a worker where the cluster is large. Nothing is started yet."""

    def report(message: str) -> None:
        log.warning("optimiser", message=message)

    optimiser = closing.enter_context(KillableOptimiser(report=report))
    if settings.round_worker_from is None:
        return closing.enter_context(RoundWorker(optimiser, clock, report=report))
    return closing.enter_context(RoundWorker(optimiser, clock, settings.round_worker_from, report=report))
