"""How large the logs of tasks may get."""

from __future__ import annotations

from solver.model.document import Document
from solver.model.quantities import Memory


class TaskLogs(Document, frozen=True):
    """What the log of each task may have on disk, in an attempt."""

    max_per_task: Memory = Memory(2**30)
