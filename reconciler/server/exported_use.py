"""What GPUs do where jobs are pods, put together: what reads it, the book, and what writes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from prometheus_client.registry import Collector
from structlog.typing import FilteringBoundLogger

from reconciler.access.token_file import token_source
from reconciler.control.control import PolicySource
from reconciler.control.runner import Condition
from reconciler.control.use_summary import KnownUse, LatestUse
from reconciler.kubernetes.control.runner import PodRunner
from reconciler.kubernetes.use.boards import Holdings, PodKey, holdings_of
from reconciler.kubernetes.use.reader import ExportedUse
from reconciler.kubernetes.use.sources import ExporterSource, PrometheusSource, UseSource
from reconciler.model.clock import Clock
from reconciler.protocols.backend import Epoch
from reconciler.protocols.gpu_use import GpuUses
from reconciler.server.parts import ServerThread
from reconciler.server.settings import DcgmSettings
from reconciler.server.use_keeper import UseFiguresCollector, UseKeeper, use_book
from solver.model.cluster import Node, NodeName
from solver.model.snapshot import Snapshot
from solver.model.workload import JobName

_LEADS: Final[frozenset[Condition]] = frozenset({"leading", "observing"})


class UseParts(NamedTuple):
    """What the API is told, what Prometheus is, and the threads."""

    known: KnownUse
    figures: tuple[Collector, ...] = ()
    members: tuple[ServerThread, ...] = ()


def exported_use(
    on: DcgmSettings | None,
    uses: GpuUses,
    policies: PolicySource,
    runner: Callable[[], PodRunner],
    epoch: Callable[[], Epoch | None],
    clock: Clock,
    log: FilteringBoundLogger,
) -> UseParts:
    """Put it together; without settings nothing is known of what GPUs do. Raises TokenFileError."""
    if on is None:
        return UseParts(KnownUse(LatestUse(dict, clock), None))

    def seen() -> Snapshot | None:
        last = runner().status.last
        return last.snapshot if last else None

    nodes = _NodesSeen(seen)
    book = use_book(policies, clock, log, nodes.of)
    leads = lambda: runner().status.condition in _LEADS  # noqa: E731  (there is no runner yet)
    reader = ExportedUse(_source(on), book, lambda: _holdings(runner()), leads, clock, log, on.interval)
    latest, keeping = LatestUse(book.latest, clock), UseKeeper(book, uses, epoch)
    return UseParts(
        KnownUse(latest, uses),
        (UseFiguresCollector(book, latest, seen), reader),
        (
            ServerThread("exported use", reader.run, reader.stop),
            ServerThread("gpu use", keeping.run, keeping.stop),
        ),
    )


def _source(on: DcgmSettings) -> UseSource:
    if not on.is_prometheus:
        return ExporterSource(on.url)
    # Better found wrong now than by the first question.
    tokens = token_source(on.token) if on.token is not None else None
    return PrometheusSource(on.url, on.interval, None if tokens is None else lambda: tokens()[0])


def _holdings(runner: PodRunner) -> Holdings | None:
    """Of the last pass."""
    last, gangs = runner.status.last, runner.sight.gangs
    if last is None:
        return None
    jobs: dict[PodKey, JobName] = {
        (member.namespace, member.name): gang.name for gang in gangs.values() for member in gang.members
    }
    return holdings_of(last.snapshot, jobs)


class _NodesSeen:
    """Those of the last pass, by name."""

    def __init__(self, seen: Callable[[], Snapshot | None]) -> None:
        self._seen = seen
        self._known: tuple[Snapshot | None, dict[NodeName, Node]] = None, {}

    def of(self, name: NodeName) -> Node | None:
        """None for one that is not there."""
        snapshot = self._seen()
        if snapshot is not self._known[0]:
            self._known = snapshot, {node.name: node for node in snapshot.nodes} if snapshot else {}
        return self._known[1].get(name)
