"""What Git says beside what a round decides: how jobs are kept alive, who may ask for what, who is told."""

from __future__ import annotations

from reconciler.checkpoints.policy import CheckpointPolicy
from solver.world.document import Document


class Operations(Document, frozen=True):
    """The rules of one revision that rounds do not read. What happens to a job by them reaches rounds through the snapshot.

    `checkpoints`: sorted by name.
    """

    checkpoints: tuple[CheckpointPolicy, ...] = ()
