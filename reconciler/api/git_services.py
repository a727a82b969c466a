"""What the API needs of the part that follows Git, handed in as one value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from reconciler.control.control import PolicyInForce
from reconciler.gitops.source.archive import RevisionArchive
from reconciler.model.git_status import PolicyStatus
from reconciler.model.review_findings import Review
from reconciler.protocols.git_decisions import AcceptedPlans, FollowingDecisions
from solver.model.quantities import Instant


@dataclass(frozen=True, slots=True)
class Planning:
    """How changes are planned before they are in force. Any thread may call.

    `fresh` is the newest plan that was made of a fetched revision; `in_force` raises NoPolicyError.
    """

    accepted: AcceptedPlans
    fresh: Callable[[], Review | None]
    in_force: Callable[[], PolicyInForce]


@dataclass(frozen=True, slots=True)
class GitServices:
    """Functions that any thread may call.

    `look` has Git looked at soon, and returns when it was asked. `looked_at` is when the last look that is over began; None:
    none is yet. `webhook_secrets`: what forges may sign with now; (): no webhooks are heard.
    """

    branch: str
    decisions: FollowingDecisions
    status: Callable[[], PolicyStatus]
    look: Callable[[], Instant]
    looked_at: Callable[[], Instant | None]
    planning: Planning
    archive: RevisionArchive
    webhook_secrets: Callable[[], tuple[bytes, ...]] = tuple
