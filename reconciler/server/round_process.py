"""What decides the rounds of this process, as it was asked for."""

from __future__ import annotations

from contextlib import ExitStack

from structlog.typing import FilteringBoundLogger

from reconciler.control.optimiser import KillableOptimiser
from reconciler.control.round_worker import FROM_GPUS, RoundWorker
from reconciler.model.clock import Clock
from reconciler.server.settings import Settings


def round_worker(settings: Settings, clock: Clock, log: FilteringBoundLogger, closing: ExitStack) -> RoundWorker:
    """In this process, or in a worker where the cluster is large. Nothing is started yet."""

    def report(message: str) -> None:
        log.warning("optimiser", message=message)

    optimiser = closing.enter_context(KillableOptimiser(report=report))
    from_gpus = FROM_GPUS if settings.round_worker_from is None else settings.round_worker_from
    return closing.enter_context(RoundWorker(optimiser, clock, from_gpus, report=report))
