"""Whether the users of a queue share it fairly, and with which weights."""

from __future__ import annotations

import msgspec

from solver.model.document import Document


class UserShares(Document, frozen=True):
    """How the users of a queue share it.

    `weights`: of users by name; all others weigh 1, and so do all jobs without a user together.
    """

    fair_share: bool
    weights: dict[str, int] = msgspec.field(default_factory=dict)

    def weight(self, user: str) -> int:
        """That of one user."""
        return self.weights.get(user, 1)
