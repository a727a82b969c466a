"""What an observer keeps of a cluster that another scheduler runs: a history of its jobs, and the nodes it happened on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from reconciler.analysis.backtest.history_file import HistoryHead, RecordedJob
from reconciler.analysis.backtest.past import put_in_place, read_recorded, write_history
from solver.model.cluster import Node
from solver.model.document import encode
from solver.model.quantities import Instant
from solver.model.snapshot import snapshot_of


@dataclass(frozen=True, slots=True)
class ObservedFiles:
    """Where the history of what happened is kept, and the nodes it happened on."""

    history: Path
    nodes: Path

    def read(self) -> tuple[tuple[RecordedJob, ...], Instant | None]:
        """What was written last, and when; nothing before. Raises TraceUnreadableError, OSError."""
        if not self.history.exists():
            return (), None
        head, jobs = read_recorded(self.history)
        return jobs, head.exported_at

    def write(self, now: Instant, jobs: Iterable[RecordedJob], nodes: Iterable[Node]) -> None:
        """Both files, each whole or not at all. Raises OSError."""
        write_history(self.history, HistoryHead(now), jobs)
        write_whole(self.nodes, encode(snapshot_of(now, nodes, (), inventory="reported")))


def write_whole(path: Path, content: bytes) -> None:
    """A file that has its name only once it is whole. Raises OSError."""
    unfinished = path.with_name(f"{path.name}.part")
    unfinished.write_bytes(content)
    put_in_place(unfinished, path)
