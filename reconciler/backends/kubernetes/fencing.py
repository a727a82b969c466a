"""What every write of a leader carries, so that the API server can refuse those of one that leads no more."""

from __future__ import annotations

from typing import Protocol

from reconciler.backend import Epoch
from reconciler.backends.kubernetes.objects import names


class Leader(Protocol):
    """Who leads now, and under which epoch."""

    @property
    def holder(self) -> str:
        """As the Lease names it."""

    @property
    def epoch(self) -> Epoch:
        """Rises with every new holder."""


class Leading(Protocol):
    """An election, as those see it who write."""

    def leadership(self) -> Leader:
        """Raises NotLeaderError (reconciler.store.protocols) where a write may not be sent now."""


def signature(leading: Leading) -> dict[str, str]:
    """The annotations that say under whom something is written; to be asked for right before it is sent. Raises NotLeaderError."""
    leader = leading.leadership()
    return {names.LEADER: leader.holder, names.EPOCH: str(leader.epoch)}
