"""Whether the users of a queue share it fairly, and with which weights."""

from __future__ import annotations

import msgspec

from solver.model.document import Document


class UserShares(Document, frozen=True):
    """How the users of a queue share it.

    `weights`: of users by name; all others weigh 1, and so do all jobs without a user together. `reclaim`: running jobs of users
    beyond their share leave for those of users inside theirs.
    """

    fair_share: bool
    weights: dict[str, int] = msgspec.field(default_factory=dict)
    reclaim: bool = False

    def weight(self, user: str) -> int:
        """That of one user."""
        return self.weights.get(user, 1)
