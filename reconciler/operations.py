"""What Git says beside what a round decides: how jobs are kept alive, who may ask for what, who is told."""

from __future__ import annotations

from reconciler.access.policy import AccessPolicy
from solver.world.document import Document


class Operations(Document, frozen=True):
    """The rules of one revision that rounds do not read. What happens to a job by them reaches rounds through the snapshot.

    `access` None: no AccessPolicy; the holder of the state folder's token may do everything.
    """

    access: AccessPolicy | None = None
