"""What a Reservation document says: which capacity is kept, for which queue or users, and from when until when."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec

from solver.model.cluster import GpuType, NodeName
from solver.model.document import Document
from solver.model.inflight import declared_holder
from solver.model.quantities import Instant
from solver.model.workload import JobName, QueueName
from solver.policy.harm import Evictable
from solver.policy.repeat import Repeat, RepeatedWindow

_AT = "@"
"""Between the name of a document and the begin of one of its windows. No name of a document has one."""


class DeclaredReservation(Document, frozen=True):
    """Capacity kept from `start` until `until` for a queue with all below it, for users, or for these users in that queue.

    It is whole `nodes`, or `count` times `gpus_per_node` whole GPUs of a type, each time on one node, which rounds choose.
    With `repeat` it keeps them in each of its windows, and does not say when it `ends`. `evict`: which jobs that may not use
    what is kept have to leave by its begin, if they still run there.
    """

    name: str
    start: Instant = msgspec.field(name="from")
    ends: Instant | None = msgspec.field(default=None, name="until")
    queue: QueueName | None = None
    users: tuple[str, ...] | None = None
    nodes: tuple[NodeName, ...] | None = None
    gpu_type: GpuType | None = None
    count: int | None = None
    gpus_per_node: int | None = None
    origin: str = ""
    job: JobName | None = None
    """Nodes that came for this job alone, which no document in Git says."""
    repeat: Repeat | None = None
    evict: Evictable = "none"

    @property
    def holder(self) -> JobName:
        """What its capacity is kept for, in snapshots and plans."""
        return declared_holder(self.name)

    @property
    def until(self) -> Instant:
        """When it ends: once and for all, or its last window."""
        if self.ends is not None:
            return self.ends
        return self.repeat.windows[-1].until if self.repeat is not None and self.repeat.windows else self.start

    @property
    def series(self) -> str:
        """The name of the document, also of one of its windows."""
        return self.name.partition(_AT)[0]

    def occurrences(self) -> Iterator[DeclaredReservation]:
        """For each of its windows a document of its own, such as `night@2026-12-01T19:00:00Z`; itself if it does not repeat."""
        if self.repeat is None:
            yield self
            return
        for window in self.repeat.windows:
            yield self.during(window)

    def during(self, window: RepeatedWindow) -> DeclaredReservation:
        """What it keeps in one window, under a name that stays the same from round to round."""
        name = f"{self.name}{_AT}{window.start}"
        return msgspec.structs.replace(self, name=name, start=window.start, ends=window.until, repeat=None)

    def admits(self, path: Collection[QueueName], user: str, job: JobName) -> bool:
        """Whether a job of this name, of a queue with this path, and of this user, may use what is kept."""
        if self.job is not None:
            return self.job == job
        return (self.queue is None or self.queue in path) and (self.users is None or user in self.users)

    def overlaps(self, start: Instant, until: Instant | None) -> bool:
        """Whether it keeps something at an instant from `start` until `until` (None: for ever)."""
        return start < self.until and (until is None or self.start < until)
