"""Past and present placements: which attempt held what of which node, in which queue, from when to when, and why no longer.

They are written by the ledger, in the very transactions that give and take devices, and say what it said at every instant: an
attempt's placements follow each other without a gap while it holds something. Times are milliseconds of the leader's clock. Where
that was set back, a placement begins when the one before it on the same node has ended, so that none overlap. Where jobs are pods
each pod has a placement, which passes write (pod_placements.py), and times are those of the API server and of kubelets.
The conformance suite is tests/contracts/test_placements.py.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal, NamedTuple, Protocol

from reconciler.model.failure import FailureKind
from reconciler.protocols.backend import Epoch
from solver.model.cluster import DeviceId, GpuType, NodeName
from solver.model.document import Document
from solver.model.quantities import Duration, Instant, MilliGpu
from solver.model.workload import JobName, QueueName

PlacementEnd = (
    Literal[
        "",
        "succeeded",
        "failed",
        "cancelled",
        "evicted",
        "suspended",
        "requeued",
        "grew",
        "shrank",
        "restarted",
        "lost",
        "unseen",
    ]
    | FailureKind
)
"""Why a placement is over: how the job ended, why the attempt was sent back, how it failed and is tried again, or that the gang has
other tasks from then on. "": it is not over, or nothing is on record. `lost`: another program took the devices back unseen.
`unseen`: a pod was gone when it was looked for; it held something at least until then."""


class Placement(Document, frozen=True):
    """What an attempt held of one GPU type from `since` until `until` (None: it still does), all nodes together.

    `gpus`: what it was charged for, in thousandths; 0 for tasks without GPUs, of which `gpu_type` is "". `beneficiary`: the job
    for which it was evicted.
    """

    number: int
    job: JobName
    attempt: int
    queue: QueueName
    user: str
    gpu_type: GpuType
    gpus: MilliGpu
    since: Instant
    until: Instant | None = None
    ended: PlacementEnd = ""
    beneficiary: str = ""


class PlacedTask(Document, frozen=True):
    """One task: `gpus` of all its `devices` together, in thousandths.

    `instance_of`: its devices are instances, and this is the GPU of the first.
    """

    group: str
    index: int
    devices: tuple[DeviceId, ...] = ()
    gpus: MilliGpu = MilliGpu(0)
    instance_of: DeviceId | None = None

    @property
    def on_gpus(self) -> tuple[DeviceId, ...]:
        """For each of its devices the GPU that it is, or is an instance of."""
        if self.instance_of is None:
            return self.devices
        # The id of an instance follows from its place: GPU/PROFILE@START.
        return (self.instance_of, *(DeviceId(device.rpartition("/")[0]) for device in self.devices[1:]))


class NodePlacement(Document, frozen=True):
    """What of a placement lay on one node."""

    placement: Placement
    node: NodeName
    gpus: MilliGpu
    tasks: tuple[PlacedTask, ...]


class Steps(NamedTuple):
    """A window of time in a `number` of steps of one length from `start` on."""

    start: Instant
    step: Duration
    number: int

    @property
    def end(self) -> Instant:
        """Where the last one ends."""
        return self.start.after(self.step * self.number)


Use = tuple[int, ...]
"""For each step, thousandths of GPUs times milliseconds: exact, and to be added up."""


class Placements(Protocol):
    """What was held of nodes and in queues. One is in a window if it held at a moment of it: since < end, until > start."""

    def on_nodes(
        self, nodes: Collection[NodeName], start: Instant, end: Instant, limit: int
    ) -> tuple[NodePlacement, ...]:
        """Those on these nodes in a window, by node and since when; no more than `limit` are read, in no order of theirs."""

    def in_queues(
        self, queues: Collection[QueueName], start: Instant, end: Instant, limit: int
    ) -> tuple[Placement, ...]:
        """Those of these queues in a window, by since when; no more than `limit` are read, in no order of theirs."""

    def in_window(self, start: Instant, end: Instant) -> tuple[NodePlacement, ...]:
        """All of a window, by node and since when."""

    def of_job(self, job: JobName, limit: int = 1_000) -> tuple[NodePlacement, ...]:
        """Those of one job, in all its attempts, by since when and by node; the newest where there are more."""

    def use_of_nodes(self, nodes: Collection[NodeName], steps: Steps, now: Instant) -> Mapping[NodeName, Use]:
        """What was held of each of these nodes until `now`; those of which nothing was are left out."""

    def use_of_queues(self, steps: Steps, now: Instant) -> Mapping[tuple[QueueName, GpuType], Use]:
        """What was held in each queue of each GPU type until `now`; what was nothing is left out."""

    def prune(self, epoch: Epoch, before: Instant, limit: int = 500) -> int:
        """Delete placements that were over before an instant, at most `limit`; returns how many. Raises StaleEpochError."""
