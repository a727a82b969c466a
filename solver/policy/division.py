"""What a policy says of GPUs that are used in parts: which queues may share one, and how a pool is partitioned by MIG."""

from __future__ import annotations

from typing import Literal

from solver.model.document import Document
from solver.model.shape import SharingMode
from solver.model.workload import QueueName


class TrustGroup(Document, frozen=True):
    """Queues, with all that are below them: their fractions may meet on one GPU."""

    name: str
    queues: tuple[QueueName, ...]


class SharingPolicy(Document, frozen=True):
    """In which pools a GPU may hold fractions of several jobs, and how. Queues in no group trust those of their root alone.

    `oversubscription`: how much of a GPU the fractions that share it by time-slicing may ask for together.
    """

    name: str
    pools: tuple[str, ...]
    mode: SharingMode
    trust_domains: tuple[TrustGroup, ...] = ()
    oversubscription: float = 1.0
    origin: str = ""


MigMode = Literal["fixed", "bounded", "free"]
"""What decides how GPUs are partitioned: the document, a round among the document's layouts, or a round."""


class MigChanges(Document, frozen=True):
    """How often a round may partition GPUs anew: `per_pool_per_hour` GPUs.

    `drain` never: only what is idle is touched. entitled: for work inside its guarantee others may have to leave a GPU first.
    """

    per_pool_per_hour: int = 8
    drain: Literal["never", "entitled"] = "never"


class MigGeometry(Document, frozen=True):
    """How the GPUs of a pool may be partitioned. A pool without one has no GPU in MIG mode.

    fixed: GPU i of every node has layout i, and those after the last layout are whole. bounded: a GPU is whole or has one
    of the layouts. free: whole, or whatever the driver allows. `model` is that of the pool's GPUs in the MIG table.
    """

    name: str
    pool: str
    mode: MigMode
    model: str = ""
    layouts: tuple[str, ...] = ()
    changes: MigChanges | None = None
    origin: str = ""

    @property
    def changes_max(self) -> int:
        """GPUs that may be partitioned anew within an hour."""
        return 0 if self.mode == "fixed" else (self.changes or MigChanges()).per_pool_per_hour

    @property
    def drains(self) -> bool:
        """Whether jobs may have to leave a GPU so that it can be partitioned anew."""
        return self.mode != "fixed" and (self.changes or MigChanges()).drain == "entitled"
