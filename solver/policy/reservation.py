"""What a Reservation document says: which capacity is kept, for which queue or users, and from when until when."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from solver.model.cluster import GpuType, NodeName
from solver.model.document import Document
from solver.model.inflight import declared_holder
from solver.model.quantities import Instant
from solver.model.workload import JobName, QueueName


class DeclaredReservation(Document, frozen=True):
    """Capacity kept from `start` until `until` for a queue with all below it, for users, or for these users in that queue.

    It is whole `nodes`, or `count` times `gpus_per_node` whole GPUs of a type, each time on one node, which rounds choose.
    """

    name: str
    start: Instant = msgspec.field(name="from")
    until: Instant
    queue: QueueName | None = None
    users: tuple[str, ...] | None = None
    nodes: tuple[NodeName, ...] | None = None
    gpu_type: GpuType | None = None
    count: int | None = None
    gpus_per_node: int | None = None
    origin: str = ""
    job: JobName | None = None
    """Nodes that came for this job alone, which no document in Git says."""

    @property
    def holder(self) -> JobName:
        """What its capacity is kept for, in snapshots and plans."""
        return declared_holder(self.name)

    def admits(self, path: Collection[QueueName], user: str, job: JobName) -> bool:
        """Whether a job of this name, of a queue with this path, and of this user, may use what is kept."""
        if self.job is not None:
            return self.job == job
        return (self.queue is None or self.queue in path) and (self.users is None or user in self.users)

    def overlaps(self, start: Instant, until: Instant | None) -> bool:
        """Whether it keeps something at an instant from `start` until `until` (None: for ever)."""
        return start < self.until and (until is None or self.start < until)
