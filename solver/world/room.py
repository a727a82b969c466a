"""What is free on each node, as arrays that a round fills up while it decides."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from solver.world.cluster import DeviceId, GpuType, Node, NodeName
from solver.world.quantities import MilliGpu
from solver.world.snapshot import Snapshot
from solver.world.topology import Topology, topology_of
from solver.world.workload import Shape, TaskPlacement

Ints = npt.NDArray[np.int64]

SLOTS_OF_A_TASK_THAT_NEEDS_NOTHING = 1_000_000
"""A task without GPUs, CPU or memory fits any node any number of times; sums over 100,000 nodes still fit 64 bits."""


@dataclass(slots=True)
class Room:
    """Free GPUs, CPU (milli-cores) and memory (bytes) per node, in the order of the snapshot's nodes.

    Nodes that take no new work have no room at all. Mutable: a round takes from it; `copy` first to try things out.
    """

    nodes: tuple[Node, ...]
    topology: Topology
    gpu_types: tuple[GpuType, ...]
    type_of_node: Ints
    open_nodes: npt.NDArray[np.bool_]
    free_gpus: Ints
    free_cpu: Ints
    free_memory: Ints
    free_devices: list[list[DeviceId]]
    index: dict[NodeName, int]

    @classmethod
    def of(cls, snapshot: Snapshot) -> Self:
        """The room left by everything that holds devices, whether running, starting, stopping or merely asked for."""
        shapes = {(job.name, group.name): group.shape for job in snapshot.jobs for group in job.spec.task_groups}
        held = {(job.name, task.group, task.index): task for job in snapshot.jobs for task in job.placement}
        for intent in snapshot.in_flight.intents:
            held |= {(intent.job, task.group, task.index): task for task in intent.tasks}
        room = cls.empty(snapshot.nodes, [node.schedulable for node in snapshot.nodes])
        room._occupy((task, shapes.get((job, group), Shape())) for (job, group, _), task in held.items())
        return room

    @classmethod
    def empty(cls, nodes: tuple[Node, ...], open_nodes: Sequence[bool] | None = None) -> Self:
        """The room of a cluster where nothing runs; by default every node counts, broken or not."""
        counts_broken = open_nodes is None
        gpu_types = tuple(sorted({node.gpu_type for node in nodes}))
        opened = np.array([True] * len(nodes) if open_nodes is None else open_nodes, dtype=bool)
        devices = [[gpu.id for gpu in node.gpus if gpu.healthy or counts_broken] for node in nodes]
        return cls(
            nodes=nodes,
            topology=topology_of(nodes),
            gpu_types=gpu_types,
            type_of_node=np.array([gpu_types.index(node.gpu_type) for node in nodes], dtype=np.int64),
            open_nodes=opened,
            free_gpus=np.array([len(ids) for ids in devices], dtype=np.int64) * opened,
            free_cpu=np.array([node.cpu for node in nodes], dtype=np.int64) * opened,
            free_memory=np.array([node.memory for node in nodes], dtype=np.int64) * opened,
            free_devices=devices,
            index={node.name: number for number, node in enumerate(nodes)},
        )

    def copy(self) -> Self:
        """An independent room with the same free capacity."""
        return type(self)(
            self.nodes,
            self.topology,
            self.gpu_types,
            self.type_of_node,
            self.open_nodes,
            self.free_gpus.copy(),
            self.free_cpu.copy(),
            self.free_memory.copy(),
            list(self.free_devices),
            self.index,
        )

    def slots(self, shape: Shape, gpu_type: GpuType | None) -> Ints:
        """How many tasks of this shape each node takes; `gpu_type` None accepts any node."""
        usable = self.open_nodes if gpu_type is None else self.open_nodes & self.of_type(gpu_type)
        count = np.full(len(self.nodes), SLOTS_OF_A_TASK_THAT_NEEDS_NOTHING, dtype=np.int64)
        for free, need in ((self.free_gpus, shape.gpus), (self.free_cpu, shape.cpu), (self.free_memory, shape.memory)):
            if need:
                np.minimum(count, np.maximum(free, 0) // int(need), out=count)
        return count * usable

    def of_type(self, gpu_type: GpuType) -> npt.NDArray[np.bool_]:
        """Which nodes have this GPU type; none where the cluster has not heard of it."""
        if gpu_type not in self.gpu_types:
            return np.zeros(len(self.nodes), dtype=bool)
        matches: npt.NDArray[np.bool_] = self.type_of_node == self.gpu_types.index(gpu_type)
        return matches

    def gpus_free(self, gpu_type: GpuType) -> MilliGpu:
        """Free GPUs of a type."""
        return MilliGpu.gpus(int(self.free_gpus[self.of_type(gpu_type)].sum()))

    def take(self, node: int, shape: Shape, tasks: int) -> list[tuple[DeviceId, ...]]:
        """Give `tasks` tasks of a shape their devices on one node, lowest index first."""
        self.free_gpus[node] -= shape.gpus * tasks
        self.free_cpu[node] -= shape.cpu * tasks
        self.free_memory[node] -= shape.memory * tasks
        devices = self.free_devices[node]
        self.free_devices[node] = devices[shape.gpus * tasks :]
        return [tuple(devices[shape.gpus * task : shape.gpus * (task + 1)]) for task in range(tasks)]

    def give_back(self, task: TaskPlacement, shape: Shape) -> None:
        """The task has ended: what it held is free again, where its node takes new work and its devices are healthy."""
        node = self.index.get(task.node)
        if node is None or not self.open_nodes[node]:
            return
        free = {*self.free_devices[node], *task.devices}
        self.free_devices[node] = [gpu.id for gpu in self.nodes[node].gpus if gpu.healthy and gpu.id in free]
        self.free_gpus[node] = len(self.free_devices[node])
        self.free_cpu[node] += shape.cpu
        self.free_memory[node] += shape.memory

    def _occupy(self, held: Iterable[tuple[TaskPlacement, Shape]]) -> None:
        taken: dict[int, set[DeviceId]] = {}
        for task, shape in held:
            node = self.index.get(task.node)
            if node is None:  # its node has left the inventory: nothing of it can be given away
                continue
            taken.setdefault(node, set()).update(task.devices)
            self.free_cpu[node] -= shape.cpu
            self.free_memory[node] -= shape.memory
        for node, ids in taken.items():
            self.free_devices[node] = [device for device in self.free_devices[node] if device not in ids]
            self.free_gpus[node] = len(self.free_devices[node]) * bool(self.open_nodes[node])
