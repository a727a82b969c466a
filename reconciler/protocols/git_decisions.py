"""What people decide about following Git, remembered: approvals, suspensions, accepted plans.

The conformance suites are tests/contracts/test_git_decisions.py and test_accepted_plans.py.
"""

from __future__ import annotations

from typing import Protocol

from reconciler.model.envelope import AcceptedPlan
from reconciler.model.git_record import Approval, Suspension
from reconciler.protocols.backend import Epoch
from solver.model.quantities import Instant


class FollowingDecisions(Protocol):
    """Approvals of held revisions, and suspensions of following, of which at most one is in force."""

    def approve(self, asked: Approval) -> Approval:
        """Keep an approval, with its number. One of the same commit, reason and place that is not used yet stays as it is."""

    def approval(self, commit: str, reason: str, in_place_of: str) -> Approval | None:
        """What was accepted of just that, and is not used yet."""

    def use(self, commit: str, at: Instant) -> None:
        """The commit is in force: every approval of it is used. Idempotent; the first time stays."""

    def put_in_force(self, epoch: Epoch, revision: str) -> None:
        """What the leader has put in force, for those that stand by. Raises StaleEpochError."""

    def in_force(self) -> str:
        """The revision that a leader put in force last; "": none did."""

    def suspend(self, asked: Suspension) -> Suspension:
        """Put a suspension in force in place of the one that is; the same again, by author, reason and end, stays as it is."""

    def resume(self, at: Instant, by: str) -> Suspension | None:
        """End the suspension: returns it as it is then; None where none was in force."""

    def suspension(self, now: Instant) -> Suspension | None:
        """The one that is in force."""

    def approvals(self, limit: int = 100) -> tuple[Approval, ...]:
        """The newest, used or not, newest first."""


class AcceptedPlans(Protocol):
    """At most one of each meaning: the newest."""

    def accept(self, plan: AcceptedPlan) -> None:
        """Keep it, in place of an earlier one that says the same of another cluster, or accepts another harm."""

    def accepted(self, meaning: str) -> AcceptedPlan | None:
        """What was accepted of a revision that says this, and is not used up."""

    def use(self, meaning: str) -> None:
        """A revision that says this is in force: it counts once, and is forgotten. Idempotent; its event stays on record."""
