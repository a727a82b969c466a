"""How far a control plane follows what it does not keep itself: kind by kind of an API server's objects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from solver.model.document import Document
from solver.model.quantities import Instant

BEHIND_S: Final = 180.0
"""A server that is heard says something of each kind about every minute, be it that nothing has changed."""


class FollowedKind(Document, frozen=True):
    """`objects` of a `kind`, in the `version` that the server has. `is_needed`: without it nothing is decided.

    `listed_at`: when all of it was read last, and `silent_s`: for how long the server has said nothing of it (null: never).
    `breaks`: how often the watch had to be taken up again. `is_absent`: the server does not have it, which is no `problem`.
    """

    kind: str
    version: str
    is_needed: bool
    objects: int
    listed_at: Instant | None = None
    silent_s: float | None = None
    breaks: int = 0
    is_absent: bool = False
    problem: str = ""

    @property
    def is_behind(self) -> bool:
        """What is known of it may be old. Of what is not needed, and may not be read, nothing is known."""
        if self.is_absent or (self.problem and not self.is_needed):
            return False
        return bool(self.problem) or (self.silent_s is not None and self.silent_s > BEHIND_S)

    @property
    def state(self) -> str:
        """In words."""
        if self.is_behind:
            heard = "" if self.silent_s is None else f": nothing heard for {self.silent_s:.0f} s"
            return f"behind{heard}{f'; {self.problem}' if self.problem else ''}"
        if self.problem:
            return f"not followed: {self.problem}"
        return "being read" if self.listed_at is None else "followed"


def behind(kinds: Iterable[FollowedKind]) -> Iterator[FollowedKind]:
    """Those of which what is known may be old."""
    return (kind for kind in kinds if kind.is_behind)
