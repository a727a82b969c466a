"""Deletes what attempts left on disk, their logs first of all, once their end has been on record for long."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event as Signal
from typing import Final

from structlog.typing import FilteringBoundLogger

from reconciler.model.clock import Clock
from reconciler.node.local.folders import StateFolders
from solver.model.quantities import Duration

LOOKED_EVERY_S: Final = 600.0


@dataclass
class AttemptRetention:
    """Call `run` in a thread of its own, since large logs take a while to delete; `stop` from any.

    What is deleted is read only by requests for a log, and others may delete it at the same time.
    """

    folders: StateFolders
    clock: Clock
    keep: Duration
    log: FilteringBoundLogger
    every_s: float = LOOKED_EVERY_S
    _stopped: Signal = field(default_factory=Signal)
    _told: set[Path] = field(default_factory=set)

    def run(self) -> None:
        """Look until stopped."""
        while True:
            self.look()
            if self._stopped.wait(self.every_s):
                return

    def stop(self) -> None:
        """Let `run` return after the attempt that is being deleted."""
        self._stopped.set()

    def look(self) -> None:
        """Delete what is old. What can't be is told once, and tried again the next time."""
        try:
            old = self.folders.forgotten_before(self.clock.now().after(-self.keep))
        except OSError as error:
            self._tell(self.folders.root, error)
            return
        deleted = sum(not self._stopped.is_set() and self._delete(attempt) for attempt in old)
        if deleted:
            self.log.info("logs-deleted", attempts=deleted, older_than=str(self.keep))

    def _delete(self, attempt: Path) -> bool:
        try:
            shutil.rmtree(attempt)
        except FileNotFoundError:
            return False  # others were faster
        except OSError as error:
            self._tell(attempt, error)
            return False
        return True

    def _tell(self, folder: Path, error: OSError) -> None:
        if folder not in self._told:
            self._told.add(folder)
            self.log.warning("logs-not-deleted", folder=str(folder), message=error.strerror)
