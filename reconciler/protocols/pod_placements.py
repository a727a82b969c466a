"""The protocol that puts on record what gangs of pods were, and what their pods held.

The conformance suite is tests/contracts/test_pod_placements.py.
Where jobs are pods no ledger gives and takes GPUs: each pass says what is new against what is on record. What is said again changes
nothing, since a pod counts once by its uid. What is read of it is read as of any other job: Placements and PastJobs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal, NamedTuple, Protocol

from reconciler.model.job_record import JobRecord
from reconciler.protocols.backend import Epoch
from reconciler.protocols.placements import PlacedTask, PlacementEnd
from solver.model.cluster import DeviceId, GpuType, NodeName
from solver.model.document import Document
from solver.model.quantities import Instant
from solver.model.workload import JobName, JobSpec, QueueName

PodUid = str
GangEnding = Literal["succeeded", "failed", "cancelled", "unseen"]
"""`cancelled`: its pods were deleted. `unseen`: they were gone when they were looked for, and how they ended is not known."""


class HeldPod(Document, frozen=True):
    """What a pod holds of its node since it was bound to it. `gang`: as its pods call it.

    A task without devices holds as many of `slots`, the node's GPUs, as it has thousandths: which ones is not known, and those that
    nothing else holds are put on record.
    """

    uid: PodUid
    gang: JobName
    queue: QueueName
    gpu_type: GpuType
    node: NodeName
    task: PlacedTask
    since: Instant
    slots: tuple[DeviceId, ...] = ()

    def holds_as(self, other: HeldPod) -> bool:
        """Both hold the same for the same gang; which of its tasks a pod is changes when others end."""
        return self._what == other._what

    @property
    def _what(self) -> tuple[object, ...]:
        task = self.task
        return self.gang, self.queue, self.gpu_type, self.node, task.devices, task.gpus, task.instance_of


class PodRelease(NamedTuple):
    """Until when a pod held what it had, why no longer, and until when its gang's work was saved (None: it does not say).

    `is_at_most`: nothing says when it ended, but that it was by then. What others have of its GPUs was free before.
    """

    until: Instant
    ended: PlacementEnd
    beneficiary: str = ""
    saved_at: Instant | None = None
    is_at_most: bool = False


class RecordedGang(Document, frozen=True):
    """A gang that is whole, as it is. `controllers`: uids of what made its pods, by which one that comes back is known."""

    name: JobName
    spec: JobSpec
    submitted_at: Instant
    controllers: tuple[str, ...] = ()


class GangEnd(NamedTuple):
    """When the last pod of a gang was gone, and how it ended."""

    at: Instant
    ended: GangEnding


class PodChanges(NamedTuple):
    """What one look shows that is not on record. `at`: when it was.

    `gangs`: those that are new or are not as they were. `came`: pods that hold something else than is on record, with those that
    hold nothing any more and are not on record at all. `left`: by uid. `ended`: gangs of which no pod is left.
    """

    at: Instant
    gangs: tuple[RecordedGang, ...] = ()
    came: tuple[HeldPod, ...] = ()
    left: Mapping[PodUid, PodRelease] = {}
    ended: Mapping[JobName, GangEnd] = {}

    def __bool__(self) -> bool:
        """There is something to put on record."""
        return bool(self.gangs or self.came or self.left or self.ended)


class PodPlacements(Protocol):
    """Writes placements and past jobs of pods. A gang that comes back under its name after it was evicted or failed, or by the same
    controller, goes on as the same job in its next attempt; any other is another job, `NAME#2`.
    """

    def keep(self, epoch: Epoch, changes: PodChanges) -> None:
        """Put it on record, all or nothing. Raises StaleEpochError."""

    def held(self) -> dict[PodUid, HeldPod]:
        """Which pods hold what, as far as it is on record."""

    def on_record(self, pods: Collection[PodUid]) -> frozenset[PodUid]:
        """Which of these are, be they over."""

    def gangs(self) -> dict[JobName, RecordedGang]:
        """Gangs that have not ended, as far as it is on record."""

    def past(self, start: Instant, end: Instant) -> tuple[JobRecord, ...]:
        """Gangs that were there in a window, live and ended, by name; `NAME#2` is told by that name."""
