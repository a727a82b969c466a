"""What counts how attempts end: a door of its own, since commands that decide rounds from files need no metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, Protocol

from reconciler.model.failure import FailureKind
from solver.model.inflight import StopPurpose

LossCause = Literal["eviction", "failure", "suspension", "requeue"]
"""By what the attempt ended whose work since the last checkpoint is gone."""

FailureFollow = Literal["retried", "outlived", "failed"]
"""What follows for the job: another attempt, the same one without or with its tasks anew, or nothing."""

LOSSES: Final[Mapping[StopPurpose, LossCause]] = {
    "evict": "eviction",
    "suspend": "suspension",
    "requeue": "requeue",
    "stuck": "failure",
}
"""What for an attempt was asked to stop; where it is for another reason, nothing counts as lost."""


class EndsTally(Protocol):
    """Threads may share it."""

    def failed(self, kind: FailureKind, follow: FailureFollow) -> None:
        """A job, or tasks of it."""

    def lost(self, cause: LossCause, gpu_s: float) -> None:
        """An attempt is over, and so much of its work is gone."""


class NoTally:
    """Counts nothing."""

    def failed(self, kind: FailureKind, follow: FailureFollow) -> None:
        """As if it had not been told."""

    def lost(self, cause: LossCause, gpu_s: float) -> None:
        """As if it had not been told."""


NO_TALLY: Final = NoTally()
