"""What queues have used, as it is kept between passes."""

from __future__ import annotations

from solver.model.document import Document
from solver.model.inflight import Usage
from solver.model.quantities import Instant


class PastUse(Document, frozen=True):
    """What queues have held, decayed, as of an instant."""

    usage: tuple[Usage, ...] = ()
    at: Instant = Instant(0)
