"""What GPUs do now beside which jobs hold them: two utilisations, allocated of what is healthy, and active of what is allocated.

A GPU is active by its newest minute, if that is not old. One of which nothing is known counts as allocated and not as measured, and
is in no average. Of a GPU that several jobs share, or that is partitioned, it is not known which of them used it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from threading import Lock
from typing import Final, NamedTuple

from reconciler.model.clock import Clock
from reconciler.model.gpu_use import HEADER_BYTES, METRICS, MINUTE, UNKNOWN, NodeMinute, value_of
from reconciler.protocols.gpu_use import GpuUses
from solver.model.cluster import DeviceId, GpuType, Node, NodeName
from solver.model.document import Document
from solver.model.quantities import Duration, Instant
from solver.model.snapshot import Snapshot
from solver.model.workload import JobName, QueueName

FRESH: Final = Duration(4 * MINUTE)
"""Since the beginning of a minute: it is over after one, and told within another."""
_ACTIVE_AT: Final = HEADER_BYTES + 4 * METRICS.index("active")
_PART: Final = 0.05
"""Of the time in which use is asked for again and again, at most so much goes into working it out."""


class GpuUtilisation(Document, frozen=True, omit_defaults=False):
    """GPUs of one type, of the cluster or in one queue or priority class. `active` of `measured`: the others are not known.

    `healthy`: those that could be held; null in a queue or class. `measured`: of the allocated ones, those held whole by one job
    that have a figure. `active`: their sum, in GPUs: 2.5 of 4 measured ones are 62.5 %.
    """

    gpu_type: GpuType
    allocated: int
    measured: int
    active: float
    healthy: int | None = None


class JobUse(NamedTuple):
    """Of a job's GPUs: how many are measured, and how active those are together."""

    gpus: int
    measured: int
    active: float


class GpuHolder(NamedTuple):
    """A job that holds a GPU, or a part of it."""

    job: JobName
    queue: QueueName
    user: str
    priority_class: str
    is_whole: bool


class GpuNow(NamedTuple):
    """One GPU. `record`: of the minute from `start` on; UNKNOWN where none was told."""

    gpu: DeviceId
    node: NodeName
    gpu_type: GpuType
    healthy: bool
    holders: tuple[GpuHolder, ...]
    start: Instant | None
    record: bytes


class UseNow(NamedTuple):
    """All of it, for one snapshot."""

    gpus: tuple[GpuNow, ...]
    types: tuple[GpuUtilisation, ...]
    queues: Mapping[QueueName, tuple[GpuUtilisation, ...]]
    classes: Mapping[str, tuple[GpuUtilisation, ...]]
    jobs: Mapping[JobName, JobUse]


class LatestUse:
    """Worked out anew when there is a newer snapshot or minute, but seldom in a large cluster. Threads may share it."""

    def __init__(self, minutes: Callable[[], Mapping[NodeName, NodeMinute]], clock: Clock) -> None:
        self._minutes = minutes
        self._clock = clock
        self._working = Lock()
        self._latest: UseNow | None = None
        self._again_at_s = 0.0

    def of(self, snapshot: Snapshot) -> UseNow:
        """For this snapshot, or a little older."""
        with self._working:
            begun_s = self._clock.monotonic_s()
            if self._latest is None or begun_s >= self._again_at_s:
                self._latest = use_now(snapshot, self._minutes(), self._clock.now())
                over_s = self._clock.monotonic_s()
                self._again_at_s = over_s + (over_s - begun_s) / _PART
            return self._latest


class KnownUse(NamedTuple):
    """What GPUs do, and what is kept of what they did; None: nothing is, as no agents tell it."""

    latest: LatestUse
    past: GpuUses | None


def use_now(snapshot: Snapshot, minutes: Mapping[NodeName, NodeMinute], now: Instant) -> UseNow:
    """What the newest minutes say of the GPUs of a snapshot."""
    holders = _holders(snapshot)
    gpus = tuple(gpu for node in snapshot.nodes for gpu in _of_node(node, minutes.get(node.name), holders))
    types, queues, classes = _Lines(), defaultdict[QueueName, _Lines](_Lines), defaultdict[str, _Lines](_Lines)
    jobs: dict[JobName, JobUse] = {}
    for gpu in gpus:
        holding = gpu.holders
        active = active_of(gpu, now) if len(holding) == 1 and holding[0].is_whole else None
        types.add(gpu.gpu_type, healthy=gpu.healthy, held=bool(holding), active=active)
        for holder in holding:
            queues[holder.queue].add(gpu.gpu_type, healthy=False, held=True, active=active)
            classes[holder.priority_class].add(gpu.gpu_type, healthy=False, held=True, active=active)
            known = jobs.get(holder.job, JobUse(0, 0, 0.0))
            jobs[holder.job] = JobUse(
                known.gpus + 1, known.measured + (active is not None), known.active + (active or 0.0)
            )
    return UseNow(
        gpus,
        types.lines(of_cluster=True),
        {queue: lines.lines() for queue, lines in sorted(queues.items())},
        {name: lines.lines() for name, lines in sorted(classes.items())},
        jobs,
    )


def active_of(gpu: GpuNow, now: Instant) -> float | None:
    """From 0 to 1; None: it is not known, or was a while ago."""
    if gpu.start is None or not -FRESH < now - gpu.start < FRESH:
        return None
    value = value_of("active", gpu.record[_ACTIVE_AT])
    return None if value is None else value / 100


def _holders(snapshot: Snapshot) -> dict[DeviceId, tuple[GpuHolder, ...]]:
    """Of each GPU, those jobs that hold it or a part of it, each once."""
    found: dict[DeviceId, dict[JobName, GpuHolder]] = {}
    for job in snapshot.jobs:
        for task in job.placement:
            is_whole = task.mig is None and task.share is None
            for device in task.on_gpus:
                holder = GpuHolder(job.name, job.spec.queue, job.user, job.spec.priority_class, is_whole)
                found.setdefault(device, {})[job.name] = holder
    return {device: tuple(holders.values()) for device, holders in found.items()}


def _of_node(
    node: Node, minute: NodeMinute | None, holders: Mapping[DeviceId, tuple[GpuHolder, ...]]
) -> Iterator[GpuNow]:
    records = {gpu.gpu: gpu.record for gpu in minute.gpus} if minute else {}
    for gpu in node.gpus:
        yield GpuNow(
            gpu.id,
            node.name,
            node.gpu_type,
            node.ready and gpu.healthy,
            holders.get(gpu.id, ()),
            minute.start if minute and gpu.id in records else None,
            records.get(gpu.id, UNKNOWN),
        )


class _Lines:
    """Added up by GPU type."""

    def __init__(self) -> None:
        self._sums: dict[GpuType, list[float]] = {}

    def add(self, gpu_type: GpuType, *, healthy: bool, held: bool, active: float | None) -> None:
        """One GPU. A held GPU of a broken node is still a job's, and no less there to be used."""
        sums = self._sums.setdefault(gpu_type, [0, 0, 0, 0.0])
        sums[0] += healthy or held
        sums[1] += held
        if active is not None:
            sums[2] += 1
            sums[3] += active

    def lines(self, *, of_cluster: bool = False) -> tuple[GpuUtilisation, ...]:
        """By type."""
        return tuple(
            GpuUtilisation(
                gpu_type, int(held), int(measured), round(active, 4), healthy=int(healthy) if of_cluster else None
            )
            for gpu_type, (healthy, held, measured, active) in sorted(self._sums.items())
        )


def added_up(
    own: Mapping[QueueName, tuple[GpuUtilisation, ...]], parents: Mapping[QueueName, QueueName | None]
) -> dict[QueueName, tuple[GpuUtilisation, ...]]:
    """Of each queue with those below it."""
    sums: dict[QueueName, dict[GpuType, GpuUtilisation]] = {}
    for queue, lines in own.items():
        above: QueueName | None = queue
        while above is not None:
            known = sums.setdefault(above, {})
            for line in lines:
                before = known.get(line.gpu_type, GpuUtilisation(line.gpu_type, 0, 0, 0.0))
                known[line.gpu_type] = GpuUtilisation(
                    line.gpu_type,
                    before.allocated + line.allocated,
                    before.measured + line.measured,
                    round(before.active + line.active, 4),
                )
            above = parents.get(above)
    return {queue: tuple(known[gpu_type] for gpu_type in sorted(known)) for queue, known in sums.items()}
