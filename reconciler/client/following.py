"""How Git is followed, for programs: accepting a revision that is held, stopping and resuming, and having Git looked at."""

from __future__ import annotations

from reconciler.api.policy_payloads import (
    ApprovalAsked,
    ApprovalList,
    FreshPlan,
    LookAsked,
    PlanAccepted,
    PlanAsked,
    SuspensionAsked,
    SuspensionList,
)
from reconciler.client.transport import Transport
from reconciler.model.envelope import Envelope
from reconciler.model.git_record import Approval, Suspension
from solver.model.document import decode, encode
from solver.model.quantities import Instant


class FollowingCalls:
    """Every method raises ServerUnreachableError, NotAuthorisedError or ApiError. Repeating any of them is harmless."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def approve(self, revision: str, reason: str) -> Approval:
        """Accept the revision that is held now (at least 7 digits of its name), for what it is held for."""
        asked = encode(ApprovalAsked(revision, reason))
        answered = self._transport.call("POST", "/v1/policy/approve", content=asked)
        return decode(answered, ApprovalList).items[0]

    def approvals(self, limit: int = 100) -> tuple[Approval, ...]:
        """What was ever accepted, newest first."""
        answered = self._transport.call("GET", "/v1/policy/approvals", params={"limit": limit})
        return decode(answered, ApprovalList).items

    def accept_plan(self, envelope: Envelope, reason: str) -> PlanAccepted:
        """Accept what a saved plan says of a revision, merged or not yet. A stale one is an ApiError of code `stale-plan`."""
        asked = encode(PlanAsked(envelope, reason))
        return decode(self._transport.call("POST", "/v1/policy/plans", content=asked), PlanAccepted)

    def fresh_plan(self) -> FreshPlan:
        """What the revision that is held would do. An ApiError of code `not-planned` where none is, or none was planned."""
        return decode(self._transport.call("GET", "/v1/policy/plan"), FreshPlan)

    def suspend(self, reason: str, until: str = "") -> Suspension:
        """Stop following: for a span (`4h`), until a time, or, with "", until somebody resumes."""
        asked = encode(SuspensionAsked(reason, until))
        answered = self._transport.call("PUT", "/v1/policy/suspension", content=asked)
        return decode(answered, SuspensionList).items[0]

    def resume(self) -> Suspension | None:
        """Follow again: returns what was in force, if anything was."""
        answered = self._transport.call("DELETE", "/v1/policy/suspension")
        return next(iter(decode(answered, SuspensionList).items), None)

    def look(self) -> Instant:
        """Have Git looked at now. A status whose `looked_at` is not before what this returns has the outcome."""
        return decode(self._transport.call("POST", "/v1/policy/reconcile"), LookAsked).at
