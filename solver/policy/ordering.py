"""In which order a queue serves its own jobs."""

from __future__ import annotations

from typing import Literal

from solver.model.document import Document
from solver.model.quantities import Duration

OrderBy = Literal["priority", "fifo", "shortest", "least-served", "gittins"]
"""By what a queue orders its own waiting jobs (queueing/turns)."""


class Turns(Document, frozen=True):
    """Jobs take turns: running ones give way to jobs that come before. `max_wait`: jobs that waited for so long come first."""

    max_wait: Duration = Duration(7 * 86_400_000)


class Ordering(Document, frozen=True):
    """How a queue serves its own jobs. `strict`: no job starts that would delay one that comes earlier and waits.

    `turns` None: what runs stays. A queue that takes turns is strict: a job without its turn would only be evicted again.
    """

    by: OrderBy = "priority"
    strict: bool = False
    turns: Turns | None = None

    @property
    def by_cost(self) -> bool:
        """Whether running jobs have a place in its order as well (policy/precedence)."""
        return self.by == "gittins" or self.turns is not None

    @property
    def in_line(self) -> bool:
        """Whether no job may delay one that comes earlier."""
        return self.strict or self.turns is not None
