"""What is remembered of an attempt that runs, so that whoever decides next, after a crash too, decides the same."""

from __future__ import annotations

from solver.model.document import Document
from solver.model.quantities import Instant


class Marks(Document, frozen=True):
    """What its tasks were told, and since when they stand still. Each instant at which they were told is the number of that.

    `warned_at`: they were told that their time limit is near. `stuck_at`: they were found to be stuck, and told to be dumped;
    None again once they go on. `steps`: what the steps of all tasks together were when they were looked at last, where any
    says so, and `still_since`: since when nothing has changed in that.
    """

    warned_at: Instant | None = None
    stuck_at: Instant | None = None
    steps: int | None = None
    still_since: Instant | None = None
