"""What queues have used, as it is kept between passes."""

from __future__ import annotations

from solver.world.document import Document
from solver.world.inflight import Usage
from solver.world.quantities import Instant


class PastUse(Document, frozen=True):
    """What queues have held, decayed, as of an instant."""

    usage: tuple[Usage, ...] = ()
    at: Instant = Instant(0)
