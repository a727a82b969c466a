"""The thread that writes GPUs' use, a part of the nodes each minute, beside the loop and under its epoch; and its figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from threading import Event as Signal
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from structlog.typing import FilteringBoundLogger

from reconciler.control.control import NoPolicyError, PolicySource
from reconciler.control.gpu_use import REFUSALS, UseBook, UseRefused
from reconciler.control.use_summary import GpuUtilisation, LatestUse
from reconciler.model.clock import Clock
from reconciler.model.gpu_use import NodeMinute
from reconciler.node.use.recorder import Read, UseRecorder
from reconciler.protocols.backend import Epoch, StaleEpochError
from reconciler.protocols.gpu_use import GpuUses
from reconciler.protocols.store_errors import StoreUnusableError
from reconciler.server.declared_nodes import declared_nodes
from solver.model.cluster import Node, NodeName
from solver.model.snapshot import Snapshot
from solver.model.workload import QueueName
from solver.policy.policy import GpuUseRecords


def use_records(policies: PolicySource) -> GpuUseRecords:
    """What the policy in force says of them; before there is one, what is said where it says nothing."""
    try:
        return policies.current().policy.scheduling.gpu_use
    except NoPolicyError:
        return GpuUseRecords()


def use_book(
    policies: PolicySource,
    clock: Clock,
    log: FilteringBoundLogger,
    known: Callable[[NodeName], Node | None] | None = None,
) -> UseBook:
    """One that tells the log what it refuses. `known`: what a node is; None: what Git says."""

    def tell(refused: UseRefused) -> None:
        log.warning("gpu-use-refused", node=refused.node, gpu=refused.gpu, reason=refused.why)

    return UseBook(clock, known or declared_nodes(policies), lambda: use_records(policies).keep_minutes, tell)


def recorder_here(
    read: Read, policies: PolicySource, book: UseBook, clock: Clock, failed: Callable[[str], None]
) -> UseRecorder:
    """Of the declared nodes that this machine plays, all of them."""

    def told(minute: NodeMinute) -> None:
        gpus = {gpu.gpu: gpu for gpu in minute.gpus}
        for node in nodes_of(policies):
            own = tuple(gpus[gpu.id] for gpu in node.gpus if gpu.id in gpus)
            if own:
                book.hear(node.name, [NodeMinute(minute.start, own)])

    return UseRecorder(read, lambda: use_records(policies).sample_every, clock, failed, told)


def failure_teller(log: FilteringBoundLogger) -> Callable[[str], None]:
    """What hears why GPUs can't be asked what they do."""
    return lambda why: log.warning("gpu-use-unreadable", message=why)


def nodes_of(policies: PolicySource) -> tuple[Node, ...]:
    """Those that are declared; none before there is a policy."""
    try:
        return policies.current().nodes
    except NoPolicyError:
        return ()


NODES_A_LOOK: Final = 250
"""12,500 nodes take turns in fifty minutes, of the ninety that agents keep."""
NODES_AT_ONCE: Final = 25
"""In one transaction, some fifty milliseconds of work: writers come one after the other, and the loop is one of them."""


@dataclass
class UseKeeper:
    """Call `run` in a thread of its own; `stop` from any. `epoch` gives that of the loop, None while it does not lead."""

    book: UseBook
    uses: GpuUses
    epoch: Callable[[], Epoch | None]
    every_s: float = 60.0
    apart_s: float = 0.2
    """Between two transactions."""
    _stopped: Signal = field(default_factory=Signal)

    def run(self) -> None:
        """Look until stopped, and once more then. Raises StoreUnusableError."""
        while not self._stopped.wait(self.every_s):
            self.look()
        self.look()

    def stop(self) -> None:
        """Let `run` return after what is being written."""
        self._stopped.set()

    def look(self) -> None:
        """Write what waits of some nodes; nothing without the lead. Raises StoreUnusableError; then it waits on."""
        for _ in range(0, NODES_A_LOOK, NODES_AT_ONCE):
            epoch = self.epoch()
            if epoch is None or not self._write(epoch):
                return
            self._stopped.wait(self.apart_s)

    def _write(self, epoch: Epoch) -> bool:
        """Whether there may be more."""
        due = self.book.due(NODES_AT_ONCE)
        try:
            if due:
                self.uses.keep(epoch, due)
        except StaleEpochError:
            # Agents tell the next leader, which may be this one again.
            self.book.give_back(due)
            return False
        except StoreUnusableError:
            self.book.give_back(due)
            raise
        return len(due) == NODES_AT_ONCE


@dataclass(frozen=True, eq=False)
class UseFiguresCollector(Collector):
    """By GPU type and queue, which policy names: no job, node or GPU. `snapshot`: of the last pass; None: there was none."""

    book: UseBook
    latest: LatestUse
    snapshot: Callable[[], Snapshot | None]

    def collect(self) -> Iterator[Metric]:
        """What is refused, from the start; what GPUs do, once there was a pass."""
        refused = CounterMetricFamily(
            "quorate_gpu_use_refused",
            "Records of GPUs' use that count in no figure, by reason (docs/gpu-use.md).",
            labels=["reason"],
        )
        counts = self.book.refused()
        for why in REFUSALS:
            refused.add_metric([why], counts.get(why, 0))
        yield refused
        snapshot = self.snapshot()
        if snapshot is None:
            return
        now = self.latest.of(snapshot)
        yield from _gauges(now.queues)


def _gauges(queues: Mapping[QueueName, tuple[GpuUtilisation, ...]]) -> Iterator[Metric]:
    held = GaugeMetricFamily(
        "quorate_gpus_allocated", "GPUs that jobs hold, by their queue and type.", labels=["queue", "gpu_type"]
    )
    measured = GaugeMetricFamily(
        "quorate_gpus_measured",
        "Allocated GPUs of which it is known what they do; of the others it is not.",
        labels=["queue", "gpu_type"],
    )
    active = GaugeMetricFamily(
        "quorate_gpus_active",
        "Sum of the active shares of the measured GPUs: divided by quorate_gpus_measured, how active they are.",
        labels=["queue", "gpu_type"],
    )
    for queue, lines in queues.items():
        for line in lines:
            labels = [queue, line.gpu_type]
            held.add_metric(labels, line.allocated)
            measured.add_metric(labels, line.measured)
            active.add_metric(labels, line.active)
    yield from (held, measured, active)
