"""`quorate run`, over a cluster in memory: `python -m hack.control_plane.simulated ORDERS run --policies-repo ...`.

ORDERS is a file to which each order is appended as it arrives, with the monotonic clock, which all processes of a machine share
(clock_gettime(2)). A cluster in memory dies with its process; the next one begins with what the ledger holds, as machines would.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Collection
from contextlib import ExitStack
from pathlib import Path
from threading import Lock
from typing import TextIO

from structlog.typing import FilteringBoundLogger

from reconciler.backends.simulated.backend import SimulatedBackend
from reconciler.backends.simulated.behaviour import KIND
from reconciler.backends.simulated.cluster import SimulatedCluster
from reconciler.cli import main
from reconciler.control.control import NoPolicyError, PolicySource
from reconciler.control.gpu_use import UseBook
from reconciler.model.clock import Clock
from reconciler.protocols.backend import (
    AttemptKey,
    BackendChanges,
    BackendUnreachableError,
    Cursor,
    Epoch,
    Order,
    PartitionGpu,
    StartGang,
)
from reconciler.protocols.terminals import NO_TERMINALS, TerminalLine
from reconciler.server import local_cluster
from reconciler.server.execution_platform import ExecutionPlatform
from reconciler.server.settings import Settings
from reconciler.store.store import SqlStore
from solver.model.workload import JobName


class RecordedOrders:
    """Implements TaskRunner over the simulated backend, which is made once there is a policy to say which nodes there are."""

    def __init__(self, store: SqlStore, policies: PolicySource, clock: Clock, orders: TextIO) -> None:
        self._store = store
        self._policies = policies
        self._clock = clock
        self._orders = orders
        self._one_at_a_time = Lock()
        self._made: SimulatedBackend | None = None

    def changes(self, since: Cursor) -> BackendChanges:
        """What the cluster shows."""
        with self._one_at_a_time:
            return self._backend().changes(since)

    def submit(self, order: Order, epoch: Epoch) -> None:
        """Note when it came, and take it."""
        self._orders.write(f"{time.monotonic_ns()} {type(order).__name__} {order.job}\n")
        with self._one_at_a_time:
            self._backend().submit(order, epoch)

    def partition(self, order: PartitionGpu, epoch: Epoch) -> None:
        """There is nothing to be partitioned."""
        self._backend().partition(order, epoch)

    def forget(self, job: JobName, attempt: int, epoch: Epoch) -> None:
        """Do not report it any more."""
        self._backend().forget(job, attempt, epoch)

    def forget_all(self, over: Collection[AttemptKey], epoch: Epoch) -> dict[AttemptKey, str]:
        """Do not report them any more."""
        return self._backend().forget_all(over, epoch)

    def read_log(self, job: JobName, attempt: int, group: str, index: int, offset: int, limit: int) -> bytes:
        """A made-up log."""
        return self._backend().read_log(job, attempt, group, index, offset, limit)

    def open_terminal(self, job: JobName, attempt: int, group: str, index: int) -> TerminalLine:
        """There are none."""
        return NO_TERMINALS.open_terminal(job, attempt, group, index)

    def _backend(self) -> SimulatedBackend:
        if self._made is None:
            try:
                nodes = self._policies.current().nodes
            except NoPolicyError as error:
                raise BackendUnreachableError(str(error)) from error
            cluster = SimulatedCluster(nodes, self._clock, random.Random(1), KIND)
            claims = self._store.ledger.claims()
            records = self._store.jobs.named([claim.job for claim in claims])
            for claim in claims:
                order = StartGang(claim.job, claim.attempt, claim.tasks, records[claim.job].spec)
                cluster.accept(order, self._clock.now())
            self._made = SimulatedBackend(cluster)
        return self._made


def place_with(orders: TextIO) -> Callable[..., ExecutionPlatform]:
    """What the process is given in place of this machine."""

    def place(
        settings: Settings,  # noqa: ARG001
        store: SqlStore,
        policies: PolicySource,
        leads: Callable[[], bool],  # noqa: ARG001
        wake: Callable[[], None],  # noqa: ARG001
        clock: Clock,
        log: FilteringBoundLogger,  # noqa: ARG001
        closing: ExitStack,  # noqa: ARG001
        book: UseBook,  # noqa: ARG001
    ) -> ExecutionPlatform:
        return ExecutionPlatform(RecordedOrders(store, policies, clock, orders), lambda _, __: None)

    return place


def run(arguments: list[str]) -> int:
    """As the command line of Quorate, but for the cluster."""
    orders = Path(arguments[0]).open("a", buffering=1, encoding="utf-8")  # noqa: SIM115  (as long as the process)
    local_cluster._place = place_with(orders)  # there is no other door: users have no use for one
    return main.run(arguments[1:])


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
