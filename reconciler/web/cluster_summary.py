"""A cluster in figures: GPUs by type and by rack, in thousandths, as the last pass saw them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Self

from reconciler.web.natural_order import natural
from solver.model.cluster import DeviceId, Node, NodeName
from solver.model.quantities import MILLI_PER_GPU, Instant
from solver.model.snapshot import Snapshot
from solver.model.workload import TaskPlacement

_WHOLE: Final = int(MILLI_PER_GPU)
"""Plain: there are 100,000 of them to add up."""


NO_RACK: Final = "no rack"
"""Where nodes stand of which no rack is declared."""


@dataclass(frozen=True, slots=True)
class GpuCount:
    """GPUs of one kind, or in one place. `held` by jobs, `unusable` for new ones though nobody holds them, `free` is the rest."""

    name: str
    nodes: int
    total: int
    held: int
    unusable: int

    @property
    def free(self) -> int:
        """What a job could begin on."""
        return self.total - self.held - self.unusable


@dataclass(frozen=True, slots=True)
class ClusterSummary:
    """The whole cluster (`all`), each GPU type and each rack, sorted by name; `running` and `pending` jobs."""

    time: Instant
    all: GpuCount
    types: tuple[GpuCount, ...]
    racks: tuple[GpuCount, ...]
    running: int
    pending: int

    @classmethod
    def of(cls, snapshot: Snapshot) -> Self:
        """Of the world as a pass saw it."""
        types, racks = defaultdict[str, list[GpuCount]](list), defaultdict[str, list[GpuCount]](list)
        for node, count in _by_node(snapshot):
            types[node.gpu_type].append(count)
            racks[rack_label(node)].append(count)
        by_type = tuple(_added_up(name, counts) for name, counts in sorted(types.items()))
        return cls(
            snapshot.time,
            _added_up("all", by_type),
            by_type,
            tuple(_added_up(name, racks[name]) for name in sorted(racks, key=natural)),
            sum(bool(job.placement) for job in snapshot.jobs),
            len(snapshot.pending),
        )


def rack_label(node: Node) -> str:
    """Where a node stands, as people say it: its block and its rack."""
    return " / ".join(part for part in (node.block, node.rack) if part) or NO_RACK


def _by_node(snapshot: Snapshot) -> Iterator[tuple[Node, GpuCount]]:
    """Every node with GPUs."""
    ill = {gpu.id for node in snapshot.nodes for gpu in node.gpus if not gpu.healthy}
    held, held_of_ill = Counter[NodeName](), Counter[NodeName]()
    for job in snapshot.jobs:
        for task in job.placement:
            held[task.node] += int(task.gpus)
            if ill:
                held_of_ill[task.node] += _part_of(task, ill)
    for node in snapshot.nodes:
        if not node.gpus:
            continue
        total, taken = _WHOLE * len(node.gpus), held[node.name]
        if node.cordoned or not node.ready:
            unusable = total - taken
        else:
            unusable = _WHOLE * sum(not gpu.healthy for gpu in node.gpus) - held_of_ill[node.name]
        yield node, GpuCount(node.name, 1, total, taken, unusable)


def _part_of(task: TaskPlacement, devices: Collection[DeviceId]) -> int:
    """Thousandths of these GPUs that a task holds."""
    own = task.on_gpus
    return int(task.gpus) * sum(device in devices for device in own) // len(own) if own else 0


def _added_up(name: str, counts: Sequence[GpuCount]) -> GpuCount:
    return GpuCount(
        name,
        sum(count.nodes for count in counts),
        sum(count.total for count in counts),
        sum(count.held for count in counts),
        sum(count.unusable for count in counts),
    )
