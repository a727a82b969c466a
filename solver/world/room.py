"""What is free on each node, as arrays that a round fills up while it decides."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from solver.world.cluster import DeviceId, GpuType, Node, NodeName
from solver.world.masks import Mask, masks_of
from solver.world.node_sets import NodeSet
from solver.world.partitions import Partitions
from solver.world.pledges import NOTHING, Pledged, pledges_in
from solver.world.pool_rules import NO_RULES, PoolRules
from solver.world.quantities import MILLI_PER_GPU, MilliGpu
from solver.world.shape import MigShape, Shape, SharedShape, TrustDomain, nodes_of
from solver.world.shared_gpus import SharedGpu, SharedGpus, best_fit, share_slots, with_owner, with_share, without_share
from solver.world.snapshot import Snapshot, held_in
from solver.world.topology import Topology, topology_of
from solver.world.workload import JobName, MigSlot, QueueName, TaskPlacement

Ints = npt.NDArray[np.int64]

DomainOf = Callable[[str, QueueName], TrustDomain]
"""The trust domain of a queue in a pool."""

Reserved = Mapping[JobName, tuple[tuple[TaskPlacement, Shape], ...]]

SLOTS_OF_A_TASK_THAT_NEEDS_NOTHING = 1_000_000
"""A task without GPUs, CPU or memory fits any node any number of times; sums over 100,000 nodes still fit 64 bits."""


@dataclass(slots=True)
class Room:
    """Free GPUs, CPU (milli-cores) and memory (bytes) per node, in the order of the snapshot's nodes.

    A GPU is free as a whole (`free_gpus`, `free_devices`), divided (`shared`, for nodes that have such), in MIG mode
    (`partitions`), or somebody's. Nodes that take no new work have no room. Mutable: `copy` first to try things out.
    `reserved`: what is kept for each holder of a reservation from those whom it holds back (`solver/world/held`).
    `sets`: which nodes are in each set that task groups may be limited to.
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
    shared: dict[int, SharedGpus] = field(default_factory=dict)
    partitions: Partitions = field(default_factory=Partitions)
    reserved: Reserved = field(default_factory=dict)
    sets: Mapping[str, Mask] = field(default_factory=dict)

    @classmethod
    def of(
        cls, snapshot: Snapshot, domain_of: DomainOf, mig: PoolRules = NO_RULES, leaving: Collection[JobName] = ()
    ) -> Self:
        """The room left by everything that holds devices, whether running, starting, stopping or merely asked for.

        `leaving`: jobs to count as gone from where they are; what they were promised stays theirs.
        """
        queues = {job.name: job.spec.queue for job in snapshot.jobs}
        shapes = {(job.name, group.name): group.shape for job in snapshot.jobs for group in job.spec.task_groups}
        opened = [node.schedulable for node in snapshot.nodes]
        room = cls.empty(snapshot.nodes, opened, mig, snapshot.node_sets)
        for job, task in held_in(snapshot, leaving):
            node = room.index.get(task.node)
            if node is not None:  # else its node has left the inventory: nothing of it can be given away
                domain = domain_of(room.nodes[node].pool, queues.get(job, QueueName("")))
                room._hold(node, task, shapes.get((job, task.group), Shape()), domain, is_new=False)
        room.set_aside(NOTHING.union(*pledges_in(snapshot.nodes, snapshot.in_flight).values()))
        return room

    @classmethod
    def empty(
        cls,
        nodes: tuple[Node, ...],
        open_nodes: Sequence[bool] | None = None,
        mig: PoolRules = NO_RULES,
        node_sets: Iterable[NodeSet] = (),
    ) -> Self:
        """The room of a cluster where nothing runs; by default every node counts, broken or not."""
        counts_broken = open_nodes is None
        gpu_types = tuple(sorted({node.gpu_type for node in nodes}))
        opened = np.array([True] * len(nodes) if open_nodes is None else open_nodes, dtype=bool)
        devices = [
            [gpu.id for gpu in node.gpus if (gpu.healthy or counts_broken) and gpu.instances is None] for node in nodes
        ]
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
            partitions=Partitions.of(nodes, mig, broken_too=counts_broken),
            sets=masks_of(node_sets, nodes),
        )

    def copy(self) -> Self:
        """An independent room with the same free capacity."""
        return replace(
            self,
            free_gpus=self.free_gpus.copy(),
            free_cpu=self.free_cpu.copy(),
            free_memory=self.free_memory.copy(),
            free_devices=list(self.free_devices),
            shared=dict(self.shared),
            partitions=self.partitions.copy(),
        )

    def slots(self, shape: Shape, gpu_type: GpuType | None, *, fresh: bool = True, within: Mask | None = None) -> Ints:
        """How many tasks of this shape each node takes; `gpu_type` None accepts any node.

        `fresh` False: without dividing a GPU that is still whole, or changing how one is partitioned. `within`: so that these
        nodes take as many together; None: each node by itself, as if changes of partitions were not counted.
        """
        usable = self.usable(shape, gpu_type)
        count = np.full(len(self.nodes), SLOTS_OF_A_TASK_THAT_NEEDS_NOTHING, dtype=np.int64)
        for free, need in ((self.free_cpu, shape.cpu), (self.free_memory, shape.memory)):
            if need:
                np.minimum(count, np.maximum(free, 0) // int(need), out=count)
        if shape.uses_gpus:
            offered = self._gpu_slots(shape, fresh, None if within is None else within & usable, usable)
            np.minimum(count, offered, out=count)
        return count * usable

    def _gpu_slots(self, shape: Shape, fresh: bool, within: Mask | None, usable: Mask) -> Ints:
        if isinstance(shape, SharedShape):
            return share_slots(shape, self.free_gpus, self.topology["pool"], self.shared, fresh=fresh)
        if isinstance(shape, MigShape):
            return self.partitions.instance_slots(shape, self.free_devices, fresh=fresh, within=within)
        if fresh and any(usable[node] for node in self.partitions.rules):
            return self.partitions.whole_slots(shape.gpus, self.free_gpus, within=within)
        return np.asarray(np.maximum(self.free_gpus, 0) // max(1, shape.gpus))

    def usable(self, shape: Shape, gpu_type: GpuType | None) -> Mask:
        """The nodes that take new work and are of a type (None: any), of those that a shape may be on."""
        usable = self.open_nodes if gpu_type is None else self.open_nodes & self.of_type(gpu_type)
        return usable & self.sets[nodes_of(shape)] if nodes_of(shape) else usable

    def of_type(self, gpu_type: GpuType) -> npt.NDArray[np.bool_]:
        """Which nodes have this GPU type; none where the cluster has not heard of it."""
        if gpu_type not in self.gpu_types:
            return np.zeros(len(self.nodes), dtype=bool)
        matches: npt.NDArray[np.bool_] = self.type_of_node == self.gpu_types.index(gpu_type)
        return matches

    def milli_free(self, shapes: Sequence[Shape]) -> Ints:
        """Free milli-GPU per node: whole GPUs, and what is left of divided ones that one of the shapes may share.

        Of GPUs in MIG mode all that no task has, if one of the shapes is an instance, else those that nobody uses.
        """
        sharers = [shape for shape in shapes if isinstance(shape, SharedShape)]
        free, instances_too = self.free_gpus * MILLI_PER_GPU, any(isinstance(shape, MigShape) for shape in shapes)
        for node in self.partitions.rules:
            free[node] += self.partitions.milli_free(node, instances_too=instances_too) * bool(self.open_nodes[node])
        for node, gpus in self.shared.items() if sharers else ():
            domains = {shape.domain(self.nodes[node].pool) for shape in sharers} - {None}
            usable = [gpu.free_milli for gpu in gpus if gpu.healthy and gpu.domain in domains and gpu.free_milli > 0]
            free[node] += sum(usable) * bool(self.open_nodes[node])
        return free

    def take(self, node: int, shape: Shape, tasks: int, first: Iterable[DeviceId] = ()) -> list[tuple[DeviceId, ...]]:
        """Give `tasks` tasks of a shape their devices on one node: shares where they fit best, whole GPUs lowest index first.

        `first`: those to take before all others, in this order.
        """
        if isinstance(shape, SharedShape):
            return [(self._take_share(node, shape),) for _ in range(tasks)]
        self.free_cpu[node] -= shape.cpu * tasks
        self.free_memory[node] -= shape.memory * tasks
        wanted = shape.gpus * tasks
        missing = wanted - len(self.free_devices[node])
        free = self.free_devices[node] + (self.partitions.make_whole(node, missing) if missing > 0 else [])
        taken = set(list(dict.fromkeys([*(device for device in first if device in free), *free]))[:wanted])
        devices = [device for device in free if device in taken]
        self.free_devices[node] = [device for device in free if device not in taken]
        self.free_gpus[node] = len(self.free_devices[node])
        return [tuple(devices[shape.gpus * task : shape.gpus * (task + 1)]) for task in range(tasks)]

    def take_instances(self, node: int, shape: MigShape, tasks: int) -> list[MigSlot]:
        """Give tasks their MIG instances on one node."""
        self.free_cpu[node] -= shape.cpu * tasks
        self.free_memory[node] -= shape.memory * tasks
        slots = self.partitions.take(node, shape, tasks, self.free_devices[node])
        self._not_free(node, {slot.gpu for slot in slots})
        return slots

    def has_free(self, tasks: Iterable[tuple[TaskPlacement, Shape]]) -> bool:
        """Whether all these tasks could be where they say, on exactly their devices."""
        trial, nodes = self.copy(), set()
        for task, shape in tasks:
            if not trial._offers(task, shape):
                return False
            trial.occupy([(task, shape)])
            nodes.add(self.index[task.node])
        return all(trial.free_cpu[node] >= 0 and trial.free_memory[node] >= 0 for node in nodes)

    def occupy(self, held: Iterable[tuple[TaskPlacement, Shape]], *, is_new: bool = True) -> None:
        """These tasks hold exactly their devices.

        Of what is promised, somebody else may still hold some: a GPU that is whole to one and divided to another, or
        divided among more than fit it, has nothing to offer until enough is given back.
        """
        for task, shape in held:
            node = self.index[task.node]
            self._hold(node, task, shape, self._domain(node, shape), is_new=is_new)

    def set_aside(self, pledged: Pledged) -> None:
        """These GPUs will be partitioned anew for somebody: nobody else gets anything of them before."""
        for name, device in sorted(pledged):
            node = self.index[name]
            self.partitions.set_aside(node, device, is_whole=device in self.free_devices[node])
            self._not_free(node, {device})

    def give_back(self, task: TaskPlacement, shape: Shape) -> None:
        """The task has ended: what it held is free again, where its node takes new work and its devices are healthy."""
        node = self.index.get(task.node)
        if node is None or not self.open_nodes[node]:
            return
        self.free_cpu[node] += shape.cpu
        self.free_memory[node] += shape.memory
        for device in task.devices if node in self.shared else ():
            freed = MILLI_PER_GPU if task.share is None else task.share
            self.shared[node] = without_share(self.shared[node], device, freed)
        divided = {gpu.device for gpu in self.shared.get(node, ())}
        whole_again = (task.mig.gpu,) if task.mig and self.partitions.give_back(node, task.mig) else ()
        free = {*self.free_devices[node], *task.devices, *whole_again} - divided
        self.free_devices[node] = [gpu.id for gpu in self.nodes[node].gpus if gpu.healthy and gpu.id in free]
        self.free_gpus[node] = len(self.free_devices[node])

    def _take_share(self, node: int, shape: SharedShape) -> DeviceId:
        """A share of the divided GPU that it fills best, else of one that is divided for it."""
        domain = shape.domain(self.nodes[node].pool)
        if domain is None:
            raise AssertionError(f"no GPU of pool {self.nodes[node].pool} may be shared by this task")
        device = best_fit(self.shared.get(node, ()), shape.milli, domain) or self.free_devices[node][0]
        share = TaskPlacement("", 0, self.nodes[node].name, (device,), MilliGpu(shape.milli))
        self._hold(node, share, shape, domain)
        return device

    def _offers(self, task: TaskPlacement, shape: Shape) -> bool:
        node = self.index[task.node]
        whole = set(self.free_devices[node])
        if task.mig is not None:
            return self.partitions.offers(node, task.mig, whole)
        whole.update(self.partitions.could_be_whole(node))
        if whole.issuperset(task.devices):
            return True
        domain = self._domain(node, shape)
        offering = {gpu.device for gpu in self.shared.get(node, ()) if task.share and gpu.slots(task.share, domain)}
        return offering.issuperset(task.devices)

    def _domain(self, node: int, shape: Shape) -> TrustDomain:
        domain = shape.domain(self.nodes[node].pool) if isinstance(shape, SharedShape) else None
        return domain or TrustDomain("")

    def _hold(self, node: int, task: TaskPlacement, shape: Shape, domain: TrustDomain, *, is_new: bool = True) -> None:
        self.free_cpu[node] -= shape.cpu
        self.free_memory[node] -= shape.memory
        gpus = self.shared.get(node, ())
        for device in task.devices if task.share is not None else ():
            is_free = device in self.free_devices[node]
            healthy = is_free or any(gpu.id == device and gpu.healthy for gpu in self.nodes[node].gpus)
            undivided = SharedGpu(device, domain, MILLI_PER_GPU if is_free else 0, healthy)
            gpus = with_share(gpus, undivided, task.share or 0)
        if task.share is None:
            gpus = with_owner(gpus, task.devices)
        if gpus:
            self.shared[node] = gpus
        if task.mig is not None:
            self._hold_instance(node, task.mig, is_new)
        for device in task.devices:
            self.partitions.drop(node, device, counted=is_new)
        self._not_free(node, {*task.devices, *((task.mig.gpu,) if task.mig else ())})

    def _hold_instance(self, node: int, slot: MigSlot, is_new: bool) -> None:
        if is_new:
            self.partitions.hold(node, slot)
        elif any(gpu.id == slot.gpu and gpu.healthy for gpu in self.nodes[node].gpus):
            self.partitions.confirm(node, slot)

    def _not_free(self, node: int, held: set[DeviceId]) -> None:
        if held:
            self.free_devices[node] = [device for device in self.free_devices[node] if device not in held]
            self.free_gpus[node] = len(self.free_devices[node]) * bool(self.open_nodes[node])
