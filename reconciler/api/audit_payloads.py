"""What the API says of the audit chain, and of what users did."""

from __future__ import annotations

from reconciler.api.payloads import Payload
from reconciler.model.audit import AuditAnchor, AuditEntry
from reconciler.protocols.history import KeptEvent


class AuditPage(Payload, frozen=True, kw_only=True):
    """Links of a chain with what their records are now. `next`: the cursor of those behind them; "": there are none yet.

    `anchor`: how far both chains are.
    """

    items: tuple[AuditEntry, ...]
    anchor: AuditAnchor
    next: str = ""


class AuditEventList(Payload, frozen=True, kw_only=True):
    """What happened, newest first. `next`: the cursor of the events before these; "": there are none."""

    items: tuple[KeptEvent, ...]
    next: str = ""
