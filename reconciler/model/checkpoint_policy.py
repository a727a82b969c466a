"""What Git says of checkpoints: where they are stored, how many jobs may write at once, and how long they are kept."""

from __future__ import annotations

from reconciler.model.job_runs import folder_name
from solver.model.document import Document
from solver.model.quantities import Duration

DEFAULT = "default"
"""The policy of a job that saves its work and names none, where there is one of this name."""


class CheckpointRetention(Document, frozen=True):
    """The newest `keep` of a job stay, and beside those one in each span of `keep_every`; nothing that is older than `max_age`."""

    keep: int = 3
    keep_every: Duration | None = None
    max_age: Duration | None = None


class CheckpointPolicy(Document, frozen=True):
    """One place to store checkpoints. `storage`: the URL of a folder, each job has one of its own in it.

    `max_concurrent_checkpoints`: of how many jobs that were asked to save their work may write to it at once.
    `verify` False: nothing is read again, and a job goes on from its newest checkpoint as it is.
    """

    name: str
    storage: str
    max_concurrent_checkpoints: int = 4
    retention: CheckpointRetention = CheckpointRetention()
    verify: bool = True
    origin: str = ""

    def folder_of(self, job: str) -> str:
        """The URL of a job's own folder: of `train#2` it ends in `train.2`, since readers of URLs cut them at a `#`."""
        return f"{self.storage.rstrip('/')}/{folder_name(job)}"
