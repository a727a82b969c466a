"""What the control plane knows of a checkpoint."""

from __future__ import annotations

from typing import Literal, NamedTuple

from reconciler.model.checkpoint_findings import AnyFinding
from solver.model.document import Document
from solver.model.quantities import Instant, Memory
from solver.model.workload import JobName

CheckpointState = Literal["published", "verified", "corrupt", "deleted"]
"""`published`: whole, and not read again yet. `verified`, `corrupt`: what reading it again has shown. `deleted`: it is to go."""


class CheckpointKey(NamedTuple):
    """Names a checkpoint. Two attempts may come to the same step."""

    job: JobName
    attempt: int
    step: int


class CheckpointRecord(Document, frozen=True):
    """A checkpoint that was whole at `at`. Of a job, the newest is that of the highest attempt, then the highest step.

    `storage` names its CheckpointPolicy, `url` is its folder; `digest` is the manifest's; `size` counts the shards' bytes.
    `answers`: the newest request to save that it answers. `resumed_by`: the last attempt that was begun from it. 0: none.
    """

    job: JobName
    attempt: int
    step: int
    storage: str
    url: str
    world_size: int
    size: Memory
    digest: str
    at: Instant
    answers: int = 0
    state: CheckpointState = "published"
    findings: tuple[AnyFinding, ...] = ()
    resumed_by: int = 0

    @property
    def key(self) -> CheckpointKey:
        """Its name."""
        return CheckpointKey(self.job, self.attempt, self.step)
