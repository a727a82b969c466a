"""The thread that notes, outside the database, how far the audit chain is: what is cut off from it, or put in its place, shows."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from threading import Event as Signal

from structlog.typing import FilteringBoundLogger

from reconciler.analysis.audit.files import AuditFileError, append_anchor
from reconciler.model.clock import Clock
from reconciler.protocols.audit import AuditTrail
from reconciler.server.settings import Settings
from reconciler.store.store import SqlStore


@dataclass
class AuditAnchors:
    """Call `run` in a thread of its own; `stop` from any."""

    trail: AuditTrail
    path: Path
    clock: Clock
    log: FilteringBoundLogger
    every_s: float = 600.0
    _stopped: Signal = field(default_factory=Signal)

    def run(self) -> None:
        """Note it until stopped, and once more at the end. Raises StoreUnusableError."""
        while not self._stopped.wait(self.every_s):
            self.note()
        self.note()

    def stop(self) -> None:
        """Let `run` return."""
        self._stopped.set()

    def note(self) -> None:
        """Once; a file that can't be written is told of in the log, and keeps nothing from its work."""
        try:
            append_anchor(self.path, self.trail.anchor(self.clock.now()))
        except AuditFileError as error:
            self.log.error("audit-anchor-failed", message=str(error))  # noqa: TRY400  (it says all there is to know)


def anchors_of(settings: Settings, store: SqlStore, clock: Clock, log: FilteringBoundLogger) -> AuditAnchors:
    """Those of a control plane."""
    return AuditAnchors(store.audit, settings.audit_anchor_file, clock, log)
