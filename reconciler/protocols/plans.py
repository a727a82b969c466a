"""The protocol that keeps plans which people accepted; its conformance suite is tests/contracts/test_plans.py."""

from __future__ import annotations

from typing import Protocol

from reconciler.model.envelope import AcceptedPlan


class AcceptedPlans(Protocol):
    """At most one of each meaning: the newest."""

    def accept(self, plan: AcceptedPlan) -> None:
        """Keep it, in place of an earlier one that says the same of another cluster, or accepts another harm."""

    def accepted(self, meaning: str) -> AcceptedPlan | None:
        """What was accepted of a revision that says this, and is not used up."""

    def use(self, meaning: str) -> None:
        """A revision that says this is in force: it counts once, and is forgotten. Idempotent; its event stays on record."""
