"""What the simulated cluster has reported: entries become visible late, in order, and are read by cursor."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

from reconciler.model.facts import NodeFacts
from reconciler.protocols.backend import AttemptStopped, BackendChanges, Cursor, GpuPartitioned, TaskLeft, TaskStatus
from solver.model.cluster import Node
from solver.model.quantities import Instant
from solver.model.workload import JobName

OfCluster = Node | GpuPartitioned | NodeFacts
Entry = OfCluster | TaskStatus | TaskLeft | AttemptStopped


class SimulatedJournal:
    """The newest entry of every node, its hardware, GPU, task, leave and stopped attempt, with the cursor where it was new."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Instant, Entry]] = deque()
        self._visible: dict[Hashable, tuple[Cursor, Entry]] = {}
        self._forgotten: set[tuple[JobName, int]] = set()
        self._cursor = Cursor(0)

    def report(self, entry: Entry, visible_at: Instant) -> None:
        """Add an entry. None overtakes another, so that no reader sees a task go backwards."""
        if self._waiting:
            visible_at = max(visible_at, self._waiting[-1][0])
        self._waiting.append((visible_at, entry))

    def forget(self, job: JobName, attempt: int) -> None:
        """Stop reporting an attempt, now and later."""
        self._forgotten.add((job, attempt))
        for key, (_, entry) in list(self._visible.items()):
            if not isinstance(entry, OfCluster) and (entry.job, entry.attempt) == (job, attempt):
                del self._visible[key]

    def since(self, cursor: Cursor, now: Instant) -> BackendChanges:
        """The entries that became visible after `cursor`."""
        self._publish(now)
        entries = [entry for seen_at, entry in self._visible.values() if seen_at > cursor]
        return BackendChanges(
            self._cursor,
            tuple(entry for entry in entries if isinstance(entry, Node)),
            tuple(entry for entry in entries if isinstance(entry, TaskStatus)),
            tuple(entry for entry in entries if isinstance(entry, AttemptStopped)),
            tuple(entry for entry in entries if isinstance(entry, TaskLeft)),
            tuple(entry for entry in entries if isinstance(entry, GpuPartitioned)),
            tuple(entry for entry in entries if isinstance(entry, NodeFacts)),
        )

    def _publish(self, now: Instant) -> None:
        while self._waiting and self._waiting[0][0] <= now:
            entry = self._waiting.popleft()[1]
            if isinstance(entry, OfCluster) or (entry.job, entry.attempt) not in self._forgotten:
                self._cursor = Cursor(self._cursor + 1)
                self._visible[_key(entry)] = (self._cursor, entry)


def _key(entry: Entry) -> Hashable:
    match entry:
        case Node():
            return ("node", entry.name)
        case GpuPartitioned():
            return ("gpu", entry.device)
        case NodeFacts():
            return ("facts", entry.node)
        case TaskStatus():
            return ("task", entry.job, entry.attempt, entry.group, entry.index)
        case TaskLeft():
            return ("left", entry.job, entry.attempt, entry.group, entry.index)
        case AttemptStopped():
            return ("stopped", entry.job, entry.attempt)
