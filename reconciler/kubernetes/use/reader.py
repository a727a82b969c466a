"""The thread that reads what dcgm-exporter says, and tells the book minutes as agents do."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from threading import Event as Signal
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from structlog.typing import FilteringBoundLogger

from reconciler.control.gpu_use import AHEAD_MAX, UseBook
from reconciler.kubernetes.use.boards import Holdings, PodKey, devices_of
from reconciler.kubernetes.use.readings import BoardReading, figures_of
from reconciler.kubernetes.use.sources import LOOKED_BACK_MAX, UseSource
from reconciler.model.clock import Clock
from reconciler.model.gpu_use import MINUTE, GpuMinute, NodeMinute, record_of
from solver.model.cluster import DeviceId, NodeName
from solver.model.quantities import Duration, Instant

GRACE: Final = Duration(20_000)
"""After a minute, until Prometheus has what was scraped in it."""
_NAMED_MAX: Final = 5


@dataclass(eq=False)
class ExportedUse(Collector):
    """Call `run` in a thread of its own; `stop` from any. `known`: of the last pass; None: there was none.

    `interval`: how often the exporter has a new value. `leads`: others tell the book of the leader.
    """

    source: UseSource
    book: UseBook
    known: Callable[[], Holdings | None]
    leads: Callable[[], bool]
    clock: Clock
    log: FilteringBoundLogger
    interval: Duration
    _stopped: Signal = field(default_factory=Signal)
    _read_until: Instant | None = None
    _readings: dict[Instant, list[BoardReading]] = field(default_factory=lambda: defaultdict(list))
    _devices: dict[NodeName, dict[str, DeviceId]] = field(default_factory=dict)
    _problem: str = ""
    _silent: frozenset[NodeName] = frozenset()
    _told: int | None = None

    def run(self) -> None:
        """Look until stopped."""
        while not self._stopped.wait(self.interval.seconds):
            self.look()

    def stop(self) -> None:
        """Let `run` return soon."""
        self._stopped.set()

    def look(self) -> None:
        """Ask once, and tell minutes that are over. Without the lead, or before the first pass, nothing is asked."""
        known = self.known() if self.leads() else None
        if known is None:
            self._read_until, self._told = None, None
            self._readings.clear()
            return
        now = self.clock.now()
        since = max(self._read_until or now.after(-MINUTE), now.after(-LOOKED_BACK_MAX))
        asked = self.source.read(known.nodes.keys(), since, now)
        if not asked.problem:
            self._read_until = now
        if asked.problem and asked.problem != self._problem:
            self.log.warning("gpu-use-unreadable", message=asked.problem)
        self._problem = asked.problem
        self._take(asked.readings, known, now)
        for start in sorted(start for start in self._readings if start.after(MINUTE + GRACE) <= now):
            self._tell(start, self._readings.pop(start), known)

    def _take(self, readings: Iterable[BoardReading], known: Holdings, now: Instant) -> None:
        ahead: dict[Instant, list[BoardReading]] = defaultdict(list)
        for one in readings:
            start = Instant(one.at // MINUTE * MINUTE)
            (ahead if one.at > now.after(AHEAD_MAX) else self._readings)[start].append(one)
        for start, those in ahead.items():
            # The book refuses it, counts it, and tells.
            for node, minute in self._minutes(start, those, known):
                self.book.hear(node, [minute])
        # A minute in which nothing is read is over, too, and all nodes are silent in it.
        self._readings.setdefault(Instant(now // MINUTE * MINUTE), [])

    def _tell(self, start: Instant, readings: Iterable[BoardReading], known: Holdings) -> None:
        heard = set[NodeName]()
        for node, minute in self._minutes(start, readings, known):
            heard.add(node)
            self.book.hear(node, [minute])
        silent, self._told = frozenset(known.nodes.keys() - heard), len(heard)
        if silent - self._silent:
            named = ", ".join(sorted(silent)[:_NAMED_MAX]) + (", ..." if len(silent) > _NAMED_MAX else "")
            self.log.warning("gpu-use-silent", nodes=len(silent), message=f"nothing is told of the GPUs of {named}")
        self._silent = silent

    def _minutes(
        self, start: Instant, readings: Iterable[BoardReading], known: Holdings
    ) -> Iterator[tuple[NodeName, NodeMinute]]:
        boards: dict[NodeName, dict[str, list[BoardReading]]] = defaultdict(lambda: defaultdict(list))
        for one in readings:
            boards[one.node][one.uuid].append(one)
        for name, those in boards.items():
            node = known.nodes.get(name)
            if node is None:
                continue
            pods = {uuid: _pod(of) for uuid, of in those.items()}
            devices = devices_of(node, pods, known, self._devices.get(name, {}))
            self._devices[name] = devices
            figures = ((uuid, device, figures_of(those[uuid], self.interval)) for uuid, device in devices.items())
            gpus = tuple(GpuMinute(device, uuid, record_of(use)) for uuid, device, use in figures if use is not None)
            if gpus:
                yield name, NodeMinute(start, tuple(sorted(gpus, key=lambda gpu: gpu.gpu)))

    def collect(self) -> Iterator[Metric]:
        """Of how many nodes figures came in the last minute that was told."""
        nodes = GaugeMetricFamily(
            "quorate_gpu_use_nodes",
            "Nodes with GPUs of which dcgm-exporter told in the last minute, and of which it told nothing.",
            labels=["state"],
        )
        if self._told is not None:
            nodes.add_metric(["told"], self._told)
            nodes.add_metric(["silent"], len(self._silent))
        yield nodes


def _pod(readings: Iterable[BoardReading]) -> PodKey | None:
    """That which had the board last; a board that several share has several, and the first of them stands for all."""
    return max(((one.at, one.pod) for one in readings if one.pod is not None), default=(None, None))[1]
