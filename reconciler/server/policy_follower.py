"""Follows the policy's branch: polls it, wakes the loop when another revision is in force, and records what came of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event as Signal
from typing import Final, Protocol

from structlog.typing import FilteringBoundLogger

from reconciler.gitops.review.meaning import meaning_of
from reconciler.gitops.source.requirements import RevisionCandidate, RevisionHold
from reconciler.model.clock import Clock
from reconciler.model.git_record import REVISION_APPLIED, REVISION_REFUSED
from reconciler.model.git_status import PolicyCondition, PolicyStatus
from reconciler.protocols.git_decisions import AcceptedPlans, FollowingDecisions
from reconciler.protocols.history import Event, History
from solver.model.quantities import Instant

GAP_S: Final = 1.0
"""The least between two looks that were asked for: however many deliveries come, the forge is not asked more often."""


@dataclass(frozen=True, slots=True)
class AcceptedByPeople:
    """Implements Acceptance by what the store remembers."""

    decisions: FollowingDecisions
    plans: AcceptedPlans
    clock: Clock

    def accepted(self, candidate: RevisionCandidate, held: RevisionHold) -> str:
        """The author and the reason, of this commit in place of what is in force now."""
        in_place_of = candidate.in_force.revision if candidate.in_force else ""
        approval = self.decisions.approval(candidate.commit, held.reason, in_place_of)
        return f"{approval.author}: {approval.why}" if approval else ""

    def applied(self, candidate: RevisionCandidate) -> None:
        """Approvals of it are used, and so is the plan that was accepted of what it says."""
        self.decisions.use(candidate.commit, self.clock.now())
        self.plans.use(meaning_of(candidate.compiled))


class Reconciles(Protocol):
    """Looks at Git once, and says what came of it."""

    def reconcile(self) -> PolicyStatus:
        """Never raises for what Git holds."""


@dataclass
class PolicyFollower:
    """Call `run` in a thread of its own; `stop` and `ask` from any. `looked_at`: when the last look that is over began."""

    standing: Reconciles
    history: History
    decisions: FollowingDecisions
    clock: Clock
    actor: str
    wake: Callable[[], None]
    log: FilteringBoundLogger
    every_s: float
    looked_at: Instant | None = None
    _stopped: Signal = field(default_factory=Signal)
    _asked: Signal = field(default_factory=Signal)
    _known: PolicyStatus | None = None

    def run(self) -> None:
        """Poll until stopped. Raises StoreUnusableError."""
        while not self._stopped.is_set():
            self._asked.clear()
            began_s = self.clock.monotonic_s()
            self.look()
            if self._asked.wait(self.every_s):
                self._stopped.wait(max(0.0, began_s + GAP_S - self.clock.monotonic_s()))

    def stop(self) -> None:
        """Let `run` return after the poll that is under way."""
        self._stopped.set()
        self._asked.set()

    def ask(self) -> Instant:
        """Have Git looked at soon; returns now. The look that answers this does not begin before."""
        now = self.clock.now()
        self._asked.set()
        return now

    def look(self) -> None:
        """One poll, and what follows from it; nothing while a person has stopped it."""
        began = self.clock.now()
        if self.decisions.suspension(began) is not None:
            return
        status = self.standing.reconcile()
        self.looked_at = began
        if status == self._known:
            return
        known, self._known = self._known, status
        if known is None or status.last_applied_revision != known.last_applied_revision:
            self.wake()
        self._record(status)

    def _record(self, status: PolicyStatus) -> None:
        true = status.truth
        match true.type:
            case "Ready":
                self._note_once(REVISION_APPLIED, status.last_applied_revision, true.message)
            case "Stalled" if status.last_attempted_revision not in ("", status.last_applied_revision):
                self._note_refused(status.last_attempted_revision, true)
            case _:
                self.log.warning("policy-not-followed", reason=true.reason, message=true.message)

    def _note_refused(self, revision: str, why: PolicyCondition) -> None:
        """Once for a reason: its figures change with every plan that is made of what is held."""
        last = self._last_said(revision)
        if last is None or last.kind != REVISION_REFUSED or not last.cause.startswith(f"{why.reason}: "):
            self._note(REVISION_REFUSED, revision, f"{why.reason}: {why.message}")

    def _note_once(self, kind: str, revision: str, cause: str) -> None:
        """Record it unless it was the last thing said of this revision, as after a restart."""
        last = self._last_said(revision)
        if last is None or (last.kind, last.cause) != (kind, cause):
            self._note(kind, revision, cause)

    def _last_said(self, revision: str) -> Event | None:
        return next(iter(self.history.events(revision, limit=1)), None)

    def _note(self, kind: str, revision: str, cause: str) -> None:
        self.history.record_event(Event(self.clock.now(), kind, revision, cause, self.actor))
