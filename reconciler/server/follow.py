"""Follows the policy's branch: polls it, wakes the loop when another revision is in force, and records what came of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event as Signal
from typing import Final

from structlog.typing import FilteringBoundLogger

from reconciler.clock import Clock
from reconciler.gitsource.standing import StandingPolicy
from reconciler.gitsource.status import PolicyStatus
from reconciler.store.protocols import Event, History

APPLIED: Final = "policy-applied"
REFUSED: Final = "policy-refused"


@dataclass
class PolicyFollower:
    """Call `run` in a thread of its own; `stop` from any."""

    standing: StandingPolicy
    history: History
    clock: Clock
    actor: str
    wake: Callable[[], None]
    log: FilteringBoundLogger
    every_s: float
    _stopped: Signal = field(default_factory=Signal)
    _known: PolicyStatus | None = None

    def run(self) -> None:
        """Poll until stopped. Raises StoreUnusableError."""
        while not self._stopped.is_set():
            self.look()
            self._stopped.wait(self.every_s)

    def stop(self) -> None:
        """Let `run` return after the poll that is under way."""
        self._stopped.set()

    def look(self) -> None:
        """One poll, and what follows from it."""
        status = self.standing.reconcile()
        if status == self._known:
            return
        known, self._known = self._known, status
        if known is None or status.last_applied_revision != known.last_applied_revision:
            self.wake()
        self._record(status)

    def _record(self, status: PolicyStatus) -> None:
        true = next(condition for condition in status.conditions if condition.status)
        match true.type:
            case "Ready":
                self._note_once(APPLIED, status.last_applied_revision, true.message)
            case "Stalled" if status.last_attempted_revision:
                self._note_once(REFUSED, status.last_attempted_revision, f"{true.reason}: {true.message}")
            case _:
                self.log.warning("policy-not-followed", reason=true.reason, message=true.message)

    def _note_once(self, kind: str, revision: str, cause: str) -> None:
        """Record it unless it was the last thing said of this revision, as after a restart."""
        said = self.history.events(revision, limit=1)
        if not said or (said[-1].kind, said[-1].cause) != (kind, cause):
            self.history.record_event(Event(self.clock.now(), kind, revision, cause, self.actor))
