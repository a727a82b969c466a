"""The protocol that says which checkpoints there are, and what became of them; storage itself is the truth of their content.

The conformance suite is tests/contracts/test_checkpoint_registry.py.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from reconciler.model.checkpoint_findings import AnyFinding
from reconciler.model.checkpoint_record import CheckpointKey, CheckpointRecord
from reconciler.protocols.backend import Epoch
from solver.model.quantities import Instant
from solver.model.workload import JobName


class CheckpointGoneError(Exception):
    """The checkpoint is not there any more, or never was."""


class CheckpointRegistry(Protocol):
    """Checkpoints by job, attempt and step: published, then verified or corrupt, then deleted; one in doubt is read again."""

    def record(self, epoch: Epoch, checkpoint: CheckpointRecord) -> None:
        """A checkpoint is whole; the first record of it stays. Raises StaleEpochError."""

    def judge(self, epoch: Epoch, key: CheckpointKey, findings: tuple[AnyFinding, ...]) -> None:
        """It was read again: corrupt with findings, verified without. A corrupt one stays corrupt. Raises StaleEpochError."""

    def doubt(self, epoch: Epoch, job: JobName) -> None:
        """An attempt is over: what was verified is to be read again before the next one goes on from it. Raises StaleEpochError."""

    def resume(self, epoch: Epoch, key: CheckpointKey, attempt: int) -> None:
        """An attempt is about to begin from it: noted before it does. Raises CheckpointGoneError, StaleEpochError."""

    def delete(self, epoch: Epoch, key: CheckpointKey) -> None:
        """It is to go: noted before anything of it goes. Idempotent. Raises StaleEpochError."""

    def of(self, job: JobName) -> tuple[CheckpointRecord, ...]:
        """Every checkpoint of a job, the deleted ones too, newest first; () for an unknown job."""

    def saved(self) -> dict[tuple[JobName, int], Instant]:
        """When each attempt saved its work last, as far as that is not known to be corrupt; those that never did are left out."""

    def unjudged(
        self, storages: Collection[str], waiting: Collection[JobName] = (), limit: int = 100
    ) -> tuple[CheckpointRecord, ...]:
        """Those in these storages that are to be read again: of jobs that wait for it, newest first; then the oldest record."""

    def holders(self) -> tuple[JobName, ...]:
        """Jobs that have a checkpoint which is not deleted, sorted."""
