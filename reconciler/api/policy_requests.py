"""What people ask of the following of Git, put on record with who asked and why: the API and the console ask here."""

from __future__ import annotations

import re
from typing import Final

from reconciler.api.problems import RequestRefusedError
from reconciler.api.services import Services
from reconciler.model.git_record import WHY_MAX, Approval
from reconciler.model.review_findings import Review
from reconciler.protocols.history import Event

APPROVED: Final = "policy-approved"
_REVISION: Final = re.compile(r"[0-9a-f]{7,64}")


class PolicyRequests:
    """Of one server. Any thread may ask; authority has judged the caller before."""

    def __init__(self, services: Services) -> None:
        self._services, self._following = services, services.following

    def approve(self, revision: str, reason: str, user: str) -> Approval:
        """Accept the revision that is held now, for the reason for which it is held. It counts once, for this commit alone.

        Harmless to repeat. Raises RequestRefusedError.
        """
        status, now = self._following.status(), self._services.clock.now()
        held, commit = status.truth, status.last_attempted_revision
        if not _REVISION.fullmatch(revision) or not commit.startswith(revision) or held.type != "Stalled":
            fix = "`quorate status` says which revision was attempted, with at least 7 digits of its name."
            raise RequestRefusedError(409, "not-held", f"No revision {revision!r} is held.", fix)
        if not status.acceptable:
            fix = f"Mend it in Git: {held.message}"
            raise RequestRefusedError(409, "not-acceptable", f"{held.reason} can't be accepted by a person.", fix)
        approval = Approval(
            commit=commit,
            reason=held.reason,
            in_place_of=status.last_applied_revision,
            author=user,
            why=why_of(reason),
            at=now,
        )
        with self._services.together():
            kept = self._following.decisions.approve(approval)
            if kept.at == now:
                self._services.history.record_event(Event(now, APPROVED, commit, f"{kept.reason}: {kept.why}", user))
        self._following.look()
        return kept

    def planned(self) -> Review | None:
        """The plan of the revision that waits for a person now."""
        held, fresh = self._following.status(), self._following.planning.fresh()
        return fresh if fresh and held.acceptable and fresh.head.commit == held.last_attempted_revision else None


def why_of(written: str) -> str:
    """A person's reason, in one line. Raises RequestRefusedError."""
    why = " ".join(written.split())
    if not 0 < len(why) <= WHY_MAX:
        fix = "Say what the next operator needs to know."
        raise RequestRefusedError(422, "no-reason", f"A reason has 1 to {WHY_MAX} characters.", fix)
    return why
