"""What people decide about following Git: accepting a revision that is held, and not following for a while."""

from __future__ import annotations

from typing import Final

from solver.model.document import Document
from solver.model.quantities import Instant

WHY_MAX: Final = 500
"""Characters of a reason that a person gives."""

REVISION_APPLIED: Final = "policy-applied"
"""The kind of the event that a revision is in force from then on. Its subject is the commit."""
REVISION_REFUSED: Final = "policy-refused"
"""Likewise, that it is held."""


class Approval(Document, frozen=True, kw_only=True):
    """A person accepts one revision although a requirement holds it: this commit, for this reason, in place of that one.

    `reason` is the requirement's, `why` the person's. `in_place_of` "": nothing was applied. `number` 0: it is not on record
    yet. `used_at`: when the commit was put in force; an approval counts once.
    """

    commit: str
    reason: str
    in_place_of: str
    author: str
    why: str
    at: Instant
    number: int = 0
    used_at: Instant | None = None


class Suspension(Document, frozen=True, kw_only=True):
    """Git is not followed from `at` until `until` (None: until a user resumes), or until it is ended."""

    author: str
    why: str
    at: Instant
    until: Instant | None = None
    number: int = 0
    ended_at: Instant | None = None
    ended_by: str = ""

    def holds(self, now: Instant) -> bool:
        """Whether it is in force."""
        return self.ended_at is None and (self.until is None or now < self.until)

    def __str__(self) -> str:
        end = f"until {self.until}" if self.until is not None else "until a user resumes it"
        return f"suspended by {self.author} {end}: {self.why}"
