"""What the tasks of an attempt were told, kept where their supervisors look for it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from reconciler.node.local.attempts import Orders, read_document
from reconciler.protocols.backend import TellGang, TellReason
from reconciler.supervisor.taskfiles import TELLS, write_durably
from solver.model.document import Document, encode
from solver.model.quantities import Instant

TELLS_KEPT: Final = 16
"""Supervisors look five times a second, so older ones have been told long ago."""


class TellOrder(Document, frozen=True):
    """One order as accepted: for the tasks that came into the attempt with a growth up to `growth`."""

    number: int
    reason: TellReason
    until: Instant
    signal: str
    growth: int
    at: Instant


class TellOrders(Document, frozen=True):
    """The newest orders, oldest first."""

    tells: tuple[TellOrder, ...]


def accept_tell(attempt: Path, order: TellGang, orders: Orders, at: Instant) -> None:
    """Keep an order for the supervisors, unless one with its number or a higher one came before, or no task is known yet."""
    path = attempt / Path(TELLS).name
    known = read_document(path, TellOrders)
    tells = known.tells if known else ()
    if not orders.accepted or (tells and tells[-1].number >= order.number):
        return
    tell = TellOrder(order.number, order.reason, order.until, order.signal, max(orders.accepted), at)
    write_durably(str(path), encode(TellOrders((*tells, tell)[-TELLS_KEPT:])).decode())
