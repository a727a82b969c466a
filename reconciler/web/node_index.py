"""The nodes of a snapshot by name and by place, with what runs there and is kept there: made once for a pass, whoever looks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import msgspec

from reconciler.web.cluster_summary import rack_label
from reconciler.web.natural_order import natural
from solver.model.cluster import DeviceId, Node, NodeName
from solver.model.inflight import Repartitioning, declared_name
from solver.model.quantities import Instant
from solver.model.snapshot import Snapshot
from solver.model.workload import Job, JobName, TaskPlacement


class KeptTask(NamedTuple):
    """What is kept on a node: promised to a job that waits, reserved for one from `since`, or reserved by a document of Git.

    `document`: the name of that; "": it is kept for the job `holder`. `until` None: for as long as it may run.
    """

    holder: JobName
    document: str
    is_promise: bool
    task: TaskPlacement
    since: Instant
    until: Instant | None


class TaskOnNode(NamedTuple):
    """A task and the job that it is of."""

    job: Job
    task: TaskPlacement


@dataclass(frozen=True, slots=True)
class NodeRows:
    """`nodes` lie in the order of blocks, racks and names, as people count; `unfit`: those that do not take work with every GPU.

    `held`: thousandths of GPUs that are held, by node.
    """

    snapshot: Snapshot
    nodes: Mapping[NodeName, Node]
    racks: Mapping[str, tuple[NodeName, ...]]
    tasks: Mapping[NodeName, Sequence[TaskOnNode]]
    kept: Mapping[NodeName, Sequence[KeptTask]]
    held: Mapping[NodeName, int]
    changing: Mapping[DeviceId, Repartitioning]
    unfit: tuple[NodeName, ...]

    @classmethod
    def of(cls, snapshot: Snapshot) -> Self:
        """Of the world as a pass saw it."""
        tasks, held = defaultdict[NodeName, list[TaskOnNode]](list), defaultdict[NodeName, int](int)
        for job in snapshot.jobs:
            for task in job.placement:
                tasks[task.node].append(TaskOnNode(job, task))
                held[task.node] += int(task.gpus)
        ordered = sorted(snapshot.nodes, key=lambda node: (natural(node.block), natural(node.rack), natural(node.name)))
        racks = defaultdict[str, list[NodeName]](list)
        for node in ordered:
            racks[rack_label(node)].append(node.name)
        return cls(
            snapshot,
            {node.name: node for node in ordered},
            {label: tuple(names) for label, names in racks.items()},
            dict(tasks),
            _kept(snapshot),
            dict(held),
            {asked.device: asked for asked in snapshot.in_flight.repartitions},
            tuple(node.name for node in ordered if not node.schedulable or not all(gpu.healthy for gpu in node.gpus)),
        )

    def part(self, names: Collection[NodeName]) -> Snapshot:
        """The same world with these nodes alone, and what runs on them."""
        jobs = {job.name: job for name in names for job, _ in self.tasks.get(name, ())}
        nodes = tuple(self.nodes[name] for name in names)
        return msgspec.structs.replace(self.snapshot, nodes=nodes, jobs=tuple(jobs.values()))


def _kept(snapshot: Snapshot) -> dict[NodeName, list[KeptTask]]:
    kept = defaultdict[NodeName, list[KeptTask]](list)
    for promise in snapshot.in_flight.nominations:
        for task in promise.tasks:
            kept[task.node].append(KeptTask(promise.job, "", True, task, promise.asked_at, None))
    for reserved in snapshot.in_flight.reservations:
        document = declared_name(reserved.holder) or ""
        for task in reserved.tasks:
            kept[task.node].append(KeptTask(reserved.holder, document, False, task, reserved.start, reserved.until))
    return dict(kept)
