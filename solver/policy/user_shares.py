"""Whether the users of a queue share it fairly, and with which weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

import msgspec

from solver.model.document import Document


class UserShares(Document, frozen=True):
    """How the users of a queue share it.

    `weights`: of users by name. `group_weights`: of each member of a group, by the group's name; `member_weights` is what these
    come to for the members that Git names, by user. All others weigh 1, and so do all jobs without a user together. `reclaim`:
    running jobs of users beyond their share leave for those of users inside theirs.
    """

    fair_share: bool
    weights: dict[str, int] = msgspec.field(default_factory=dict)
    reclaim: bool = False
    group_weights: dict[str, int] = msgspec.field(default_factory=dict)
    member_weights: dict[str, int] = msgspec.field(default_factory=dict)

    def weight(self, user: str) -> int:
        """That of one user: its own, else the highest of its groups."""
        own = self.weights.get(user)
        return own if own is not None else self.member_weights.get(user, 1)

    def with_members(self, groups: Mapping[str, Sequence[str]]) -> Self:
        """With what the members of groups weigh, by user; a user of several groups has the highest of their weights."""
        found: dict[str, int] = {}
        for group, weight in self.group_weights.items():
            for user in groups.get(group, ()):
                found[user] = max(weight, found.get(user, weight))
        return msgspec.structs.replace(self, member_weights=dict(sorted(found.items())))
