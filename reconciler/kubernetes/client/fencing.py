"""What every write of a leader carries, so that the API server can refuse those of one that leads no more."""

from __future__ import annotations

from typing import Protocol


class Leader(Protocol):
    """The present leader."""

    @property
    def stamp(self) -> dict[str, str]:
        """The annotations that say under which leader, and under which epoch, something is written."""


class LeaderSource(Protocol):
    """An election, as writers see it."""

    def leadership(self) -> Leader:
        """To be asked right before each write. Raises NotLeaderError (reconciler.protocols.ledger) where none may be sent now."""
