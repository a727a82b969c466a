"""Numbers what was seen, so that each reader gets what changed after its cursor."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import msgspec

from reconciler.protocols.backend import (
    ENDED,
    AttemptStopped,
    BackendChanges,
    Cursor,
    GpuPartitioned,
    TaskLeft,
    TaskStatus,
)
from solver.model.cluster import DeviceId, Node, NodeName
from solver.model.quantities import Instant

Seen = TaskStatus | TaskLeft | AttemptStopped

SAME_NEWS_EVERY_MS = 1_000
"""What a running task says of its progress, and what memory it has, changes all the time: it is not needed more often."""

# Cursors of an earlier opening lie below all of a later one: a reader that still holds one gets everything again.
_CHANGES_PER_OPENING_BITS = 32


class LocalJournal:
    """The latest of each thing seen, with the number of the change that made it so; looking again rebuilds it."""

    def __init__(self, opening: int) -> None:
        self._sequence = opening << _CHANGES_PER_OPENING_BITS
        self._nodes: dict[NodeName, tuple[int, Node]] = {}
        self._gpus: dict[DeviceId, tuple[int, GpuPartitioned]] = {}
        self._seen: dict[Path, dict[str, tuple[int, Seen]]] = {}
        self._noted_at: dict[Path, dict[str, Instant]] = {}

    def note_nodes(self, nodes: Collection[Node]) -> None:
        """The nodes there are now; one that is no longer among them is reported as not ready."""
        there = {node.name: node for node in nodes}
        gone = {
            name: msgspec.structs.replace(node, ready=False)
            for name, (_, node) in self._nodes.items()
            if name not in there
        }
        for name, node in (there | gone).items():
            if name not in self._nodes or self._nodes[name][1] != node:
                self._nodes[name] = self._next(), node

    def note_gpus(self, reports: Collection[GpuPartitioned]) -> None:
        """The last order of each GPU that was to be partitioned."""
        for done in reports:
            if done.device not in self._gpus or self._gpus[done.device][1] != done:
                self._gpus[done.device] = self._next(), done

    def note(self, attempt: Path, part: str, seen: Seen) -> None:
        """What was seen of a part (a task, its leave, or the stop) of an attempt."""
        parts = self._seen.setdefault(attempt, {})
        if part not in parts or parts[part][1] != seen:
            parts[part] = self._next(), seen

    def note_task(self, attempt: Path, part: str, status: TaskStatus, now: Instant) -> None:
        """What was seen of a task at `now`; that it has come further, or has more memory, once in a second."""
        noted = self._noted_at.setdefault(attempt, {})
        _, before = self._seen.get(attempt, {}).get(part, (0, None))
        recently = part in noted and 0 <= now - noted[part] < SAME_NEWS_EVERY_MS
        if recently and isinstance(before, TaskStatus) and _without_figures(before) == _without_figures(status):
            return
        self.note(attempt, part, status)
        noted[part] = now

    def ended(self, attempt: Path, task: str) -> TaskStatus | None:
        """A task that has ended, so that it need not be looked at again; None while it may still change."""
        _, seen = self._seen.get(attempt, {}).get(task, (0, None))
        return seen if isinstance(seen, TaskStatus) and seen.state in ENDED else None

    def keep_only(self, attempts: set[Path]) -> None:
        """Drop every attempt but these."""
        for attempt in self._seen.keys() - attempts:
            del self._seen[attempt]
            self._noted_at.pop(attempt, None)

    def after(self, cursor: Cursor) -> BackendChanges:
        """Everything with a latest change above the cursor."""
        seen = [part for parts in self._seen.values() for number, part in parts.values() if number > cursor]
        return BackendChanges(
            Cursor(self._sequence),
            nodes=tuple(node for number, node in self._nodes.values() if number > cursor),
            tasks=tuple(part for part in seen if isinstance(part, TaskStatus)),
            stopped=tuple(part for part in seen if isinstance(part, AttemptStopped)),
            left=tuple(part for part in seen if isinstance(part, TaskLeft)),
            partitioned=tuple(done for number, done in self._gpus.values() if number > cursor),
        )

    def _next(self) -> int:
        self._sequence += 1
        return self._sequence


def _without_figures(status: TaskStatus) -> TaskStatus:
    return msgspec.structs.replace(status, progress=None, memory=None)
