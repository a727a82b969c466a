"""What is said over HTTP about following Git."""

from __future__ import annotations

from reconciler.api.payloads import Payload
from reconciler.model.envelope import AcceptedPlan, Envelope
from reconciler.model.git_record import Approval, Suspension
from reconciler.model.review_findings import Review
from solver.model.document import Document
from solver.model.quantities import Instant


class ApprovalAsked(Document, frozen=True):
    """A person accepts a revision that is held: which (at least its first 7 digits), and why."""

    revision: str
    reason: str


class ApprovalList(Payload, frozen=True, kw_only=True):
    """Which revisions people accepted although a requirement held them, newest first."""

    items: tuple[Approval, ...]


class PlanAsked(Document, frozen=True):
    """A person accepts what a saved plan says, and why."""

    envelope: Envelope
    reason: str


class PlanAccepted(Payload, frozen=True, kw_only=True):
    """What was accepted. `in_force`: the revision says what is in force already, so nothing is to follow."""

    accepted: AcceptedPlan
    in_force: bool


class FreshPlan(Payload, frozen=True, kw_only=True):
    """The newest plan of a fetched revision on the cluster as it was then, and what was accepted of it, if anything."""

    review: Review
    accepted: AcceptedPlan | None


class SuspensionAsked(Document, frozen=True):
    """Why Git is not to be followed, and until when: a span from now, a time, or "" for until a user resumes."""

    reason: str
    until: str = ""


class SuspensionList(Payload, frozen=True, kw_only=True):
    """The suspension that was begun or ended; none where none was in force."""

    items: tuple[Suspension, ...]


class LookAsked(Payload, frozen=True, kw_only=True):
    """Git is being looked at. `at`: once the `lookedAt` of a status is not before it, that status has the outcome."""

    at: Instant


class WebhookHeard(Payload, frozen=True, kw_only=True):
    """What came of a delivery. `woken`: Git is being looked at; otherwise it was about something else."""

    woken: bool
