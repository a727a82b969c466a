"""The audit chain, to be read: what was recorded, link by link. The conformance suite is tests/contracts/test_audit.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from reconciler.model.audit import CHAINS, AuditAnchor, AuditEntry, ChainName
from solver.model.document import Document
from solver.model.quantities import Instant


class AuditPlace(Document, frozen=True):
    """Where reading a chain goes on: behind this link, and behind this record."""

    link: int = 0
    record: int = 0


class AuditTrail(Protocol):
    """Links of a chain in their order, each with what its record is now; records without a link before those behind them."""

    def page(
        self, chain: ChainName, after: AuditPlace, limit: int = 500
    ) -> tuple[tuple[AuditEntry, ...], AuditPlace | None]:
        """What comes next, of one moment, and where it goes on; None: nowhere. At most `limit` links, and as many others."""

    def anchor(self, at: Instant) -> AuditAnchor:
        """How far both chains are."""


def entries_of(trail: AuditTrail) -> Iterator[AuditEntry]:
    """All of it, chain by chain. What is recorded meanwhile comes last, or not at all."""
    for chain in CHAINS:
        place: AuditPlace | None = AuditPlace()
        while place is not None:
            entries, place = trail.page(chain, place)
            yield from entries
