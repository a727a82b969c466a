"""How a document repeats: a rule, and the windows that it comes to."""

from __future__ import annotations

import msgspec

from solver.model.document import Document
from solver.model.quantities import Duration, Instant


class RepeatedWindow(Document, frozen=True):
    """One time for which what repeats holds: from `start` on, and no more at `until`."""

    start: Instant = msgspec.field(name="from")
    until: Instant


class Repeat(Document, frozen=True):
    """How a document repeats: by the `rule` of RFC 5545, in the hours of a zone, for a `duration` each time.

    `windows`: what the rule comes to, in order, none beside another. They are worked out where documents are read, so that rounds
    need neither a calendar nor a database of time zones.
    """

    rule: str
    duration: Duration
    time_zone: str
    windows: tuple[RepeatedWindow, ...] = ()
