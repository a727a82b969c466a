"""What is free in a snapshot: devices are taken from it and given back while a round decides."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple, Self

import numpy as np

from solver.capacity.free_resources import FreeResources
from solver.capacity.inventory import NodeInventory, inventory_of
from solver.capacity.masks import masks_of
from solver.capacity.mig_gpus import MigGpu
from solver.capacity.partitions import MigPartitions
from solver.capacity.pool_rules import NO_RULES, PoolRules
from solver.capacity.shared_gpus import SharedGpu, SharedGpus, best_fit, with_owner, with_share, without_share
from solver.model.arrays import Mask
from solver.model.cluster import DeviceId, Node
from solver.model.node_sets import NodeSet
from solver.model.pledges import NOTHING, Pledged, pledges_in
from solver.model.quantities import MILLI_PER_GPU, MilliGpu
from solver.model.round_cache import CachedResults, RoundCache
from solver.model.shape import MigShape, Shape, SharedShape, TrustDomain
from solver.model.snapshot import Snapshot, held_in
from solver.model.workload import JobName, JobSpec, MigSlot, QueueName, TaskPlacement

DomainOf = Callable[[str, QueueName], TrustDomain]
"""The trust domain of a queue in a pool."""

Held = tuple[TaskPlacement, Shape, TrustDomain]
"""A task, what it takes, and in which domain if it has a share."""

NO_SHAPE = Shape()
NO_DOMAIN = TrustDomain("")


class NodeFreeResources(NamedTuple):
    """What is left on a node: CPU (milli-cores), memory (bytes), free GPUs, divided ones, and those in MIG mode."""

    cpu: int
    memory: int
    devices: list[DeviceId]
    shared: SharedGpus | None
    gpus: tuple[MigGpu, ...] | None


class FreeCapacity(FreeResources):
    """What is free, and what tasks are given of it: their devices, shares and instances."""

    __slots__ = ()

    @classmethod
    def of(
        cls,
        snapshot: Snapshot,
        domain_of: DomainOf,
        mig: PoolRules = NO_RULES,
        leaving: Collection[JobName] = (),
        kept: RoundCache | None = None,
    ) -> Self:
        """The room left by everything that holds devices, whether running, starting, stopping or merely asked for.

        `leaving`: jobs to count as gone from where they are; what they were promised stays theirs.
        """
        inventory = inventory_of(snapshot.nodes)
        partitions = MigPartitions.of(snapshot.nodes, mig, broken_too=False)
        room = cls._over(inventory, inventory.is_open, inventory.healthy, snapshot.node_sets, partitions)
        specs, held = {job.name: job.spec for job in snapshot.jobs}, defaultdict[int, list[Held]](list)
        for name, tasks in groupby(held_in(snapshot, leaving), key=itemgetter(0)):
            spec = specs.get(name)
            shapes = _shapes_of(spec)
            for _, task in tasks:
                node = room.index.get(task.node)
                if node is not None:  # a node that has left the inventory gives nothing away
                    held[node].append(room._held_by(spec, shapes, task, domain_of))
        room._hold_all(held, (RoundCache() if kept is None else kept).results("left on nodes", mig.rules))
        room.set_aside(NOTHING.union(*pledges_in(snapshot.nodes, snapshot.in_flight).values()))
        return room

    @classmethod
    def empty(cls, nodes: tuple[Node, ...], mig: PoolRules = NO_RULES, node_sets: Iterable[NodeSet] = ()) -> Self:
        """The room of a cluster where nothing runs; every node and GPU counts, broken or not."""
        inventory = inventory_of(nodes)
        partitions = MigPartitions.of(nodes, mig, broken_too=True)
        return cls._over(inventory, np.ones(len(nodes), dtype=bool), inventory.whole, node_sets, partitions)

    @classmethod
    def _over(
        cls,
        known: NodeInventory,
        opened: Mask,
        devices: Sequence[list[DeviceId]],
        node_sets: Iterable[NodeSet],
        partitions: MigPartitions,
    ) -> Self:
        return cls(
            nodes=known.nodes,
            topology=known.topology,
            gpu_types=known.gpu_types,
            type_of_node=known.type_of_node,
            open_nodes=opened,
            free_gpus=np.array([len(ids) for ids in devices], dtype=np.int64) * opened,
            free_cpu=known.cpu * opened,
            free_memory=known.memory * opened,
            free_devices=list(devices),
            index=known.index,
            partitions=partitions,
            sets=masks_of(node_sets, known.nodes),
            near=known.near,
        )

    def take(self, node: int, shape: Shape, tasks: int, first: Iterable[DeviceId] = ()) -> list[tuple[DeviceId, ...]]:
        """Give `tasks` tasks of a shape their devices on one node: shares where they fit best, whole GPUs lowest index first.

        `first`: those to take before all others, in this order.
        """
        if isinstance(shape, SharedShape):
            return [(self._take_share(node, shape),) for _ in range(tasks)]
        self._will_change(node)
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
        self._will_change(node)
        self.free_cpu[node] -= shape.cpu * tasks
        self.free_memory[node] -= shape.memory * tasks
        slots = self.partitions.take(node, shape, tasks, self.free_devices[node])
        self._not_free(node, {slot.gpu for slot in slots})
        return slots

    def has_free(self, tasks: Iterable[tuple[TaskPlacement, Shape]]) -> bool:
        """Whether all these tasks could be where they say, on exactly their devices."""
        with self.trying():
            nodes = set()
            for task, shape in tasks:
                if not self._offers_to(task, shape):
                    return False
                self.occupy([(task, shape)])
                nodes.add(self.index[task.node])
            return all(self.free_cpu[node] >= 0 and self.free_memory[node] >= 0 for node in nodes)

    def occupy(self, held: Iterable[tuple[TaskPlacement, Shape]], *, is_new: bool = True) -> None:
        """These tasks hold exactly their devices.

        Of what is promised, another job may still hold some: a GPU that is whole to one and divided to another, or
        divided among more than fit it, has nothing to offer until enough is given back.
        """
        for task, shape in held:
            node = self.index[task.node]
            self._hold(node, task, shape, self._domain(node, shape), is_new=is_new)

    def hold(self, spec: JobSpec, tasks: Iterable[TaskPlacement], domain_of: DomainOf) -> None:
        """A job has these tasks, on nodes of this room, as if it had had them before the room was made."""
        shapes = _shapes_of(spec)
        for task in tasks:
            node = self.index[task.node]
            self.changes.gain()
            self._hold(node, *self._held_by(spec, shapes, task, domain_of), is_new=False)

    def _held_by(
        self, spec: JobSpec | None, shapes: Mapping[str, Shape], task: TaskPlacement, domain_of: DomainOf
    ) -> Held:
        shape = shapes.get(task.group, NO_SHAPE)
        if task.share is None:
            return task, shape, NO_DOMAIN
        pool = self.nodes[self.index[task.node]].pool
        return task, shape, domain_of(pool, spec.queue if spec else QueueName(""))

    def set_aside(self, pledged: Pledged) -> None:
        """These GPUs will be partitioned anew for a job: no other gets anything of them before."""
        for name, device in sorted(pledged):
            node = self.index[name]
            self._will_change(node)
            self.partitions.set_aside(node, device, is_whole=device in self.free_devices[node])
            self._not_free(node, {device})

    def give_back(self, task: TaskPlacement, shape: Shape) -> None:
        """The task has ended: what it held is free again, where its node takes new work and its devices are healthy."""
        node = self.index.get(task.node)
        if node is None or not self.open_nodes[node]:
            return
        self._will_change(node)
        self.changes.gain()
        self.free_cpu[node] += shape.cpu
        self.free_memory[node] += shape.memory
        healthy = self._healthy(node)
        if task.devices == healthy and not self.free_devices[node] and node not in self.shared:
            # It had the whole node, as large gangs do.
            self.free_devices[node], self.free_gpus[node] = list(healthy), len(healthy)
            return
        free = {*self.free_devices[node], *task.devices}
        if node in self.shared:
            for device in task.devices:
                freed = MILLI_PER_GPU if task.share is None else task.share
                self.shared[node] = without_share(self.shared[node], device, freed)
            free.difference_update(gpu.device for gpu in self.shared[node])
        if task.mig and self.partitions.give_back(node, task.mig):
            free.add(task.mig.gpu)
        self.free_devices[node] = [device for device in healthy if device in free]
        self.free_gpus[node] = len(self.free_devices[node])

    def _healthy(self, node: int) -> Sequence[DeviceId]:
        """The healthy GPUs of a node that are not in MIG mode, in order. A task that had one before gives back nothing whole."""
        known = self._healthy_by_node.get(node)
        if known is None:
            known = self._healthy_by_node[node] = tuple(
                gpu.id for gpu in self.nodes[node].gpus if gpu.healthy and gpu.instances is None
            )
        return known

    def _take_share(self, node: int, shape: SharedShape) -> DeviceId:
        """A share of the divided GPU that it fills best, else of one that is divided for it."""
        domain = shape.domain(self.nodes[node].pool)
        if domain is None:
            raise AssertionError(f"no GPU of pool {self.nodes[node].pool} may be shared by this task")
        device = best_fit(self.shared.get(node, ()), shape.milli, domain) or self.free_devices[node][0]
        share = TaskPlacement("", 0, self.nodes[node].name, (device,), MilliGpu(shape.milli))
        self._hold(node, share, shape, domain)
        return device

    def _offers_to(self, task: TaskPlacement, shape: Shape) -> bool:
        node = self.index[task.node]
        whole = set(self.free_devices[node])
        if task.mig is not None:
            return self.partitions.offers(node, task.mig, whole)
        divided = set(task.devices) - whole
        if not divided or self.partitions.could_be_whole(node, divided):
            return True
        domain = self._domain(node, shape)
        offering = {gpu.device for gpu in self.shared.get(node, ()) if task.share and gpu.slots(task.share, domain)}
        return offering.issuperset(task.devices)

    def _domain(self, node: int, shape: Shape) -> TrustDomain:
        domain = shape.domain(self.nodes[node].pool) if isinstance(shape, SharedShape) else None
        return domain or NO_DOMAIN

    def _hold(self, node: int, task: TaskPlacement, shape: Shape, domain: TrustDomain, *, is_new: bool = True) -> None:
        self._will_change(node)
        self.free_cpu[node] -= shape.cpu
        self.free_memory[node] -= shape.memory
        if task.share is not None or node in self.shared:
            self._hold_share(node, task, domain)
        if task.mig is not None and is_new:
            self.partitions.hold(node, task.mig)
        elif task.mig is not None:
            self._confirm(node, (task.mig,))
        for device in task.devices if node in self.partitions.rules else ():
            self.partitions.drop(node, device, counted=is_new)
        self._not_free(node, {*task.devices, *((task.mig.gpu,) if task.mig else ())})

    def _hold_all(self, held: Mapping[int, Sequence[Held]], known: CachedResults[NodeFreeResources]) -> None:
        """All that is held in a new room, by node: on a node it depends on nothing else what that leaves there."""
        for node, tasks in held.items():
            left = known.known(node, self.nodes[node], tasks)
            if left is None:
                self._hold_together(node, tasks)
                cpu, memory, devices = int(self.free_cpu[node]), int(self.free_memory[node]), self.free_devices[node]
                left = NodeFreeResources(cpu, memory, devices, self.shared.get(node), self.partitions.gpus.get(node))
                known.keep(node, left, self.nodes[node], tasks)
                continue
            self.free_cpu[node], self.free_memory[node], self.free_devices[node] = left[:3]
            if left.shared is not None:
                self.shared[node] = left.shared
            if left.gpus is not None:
                self.partitions.have(node, left.gpus)
        self.free_gpus[:] = [len(devices) for devices in self.free_devices]
        self.free_gpus *= self.open_nodes

    def _hold_together(self, node: int, tasks: Sequence[Held]) -> None:
        """All that is held on a node in a new room."""
        divided = node in self.partitions.rules
        if any(task.share is not None or (divided and task.mig is None and task.devices) for task, _, _ in tasks):
            # It matters in which order they came.
            for task, shape, domain in tasks:
                self._hold(node, task, shape, domain, is_new=False)
            return
        self.free_cpu[node] -= sum([shape.cpu for _, shape, _ in tasks])
        self.free_memory[node] -= sum([shape.memory for _, shape, _ in tasks])
        devices = {device for task, _, _ in tasks for device in task.devices}
        self.free_devices[node] = [device for device in self.free_devices[node] if device not in devices]
        if slots := [task.mig for task, _, _ in tasks if task.mig is not None]:
            self._confirm(node, slots)

    def _confirm(self, node: int, slots: Sequence[MigSlot]) -> None:
        """Instances that tasks have already."""
        healthy = {gpu.id for gpu in self.nodes[node].gpus if gpu.healthy}
        self.partitions.confirm(node, [slot for slot in slots if slot.gpu in healthy])
        self._not_free(node, {slot.gpu for slot in slots})

    def _hold_share(self, node: int, task: TaskPlacement, domain: TrustDomain) -> None:
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

    def _not_free(self, node: int, held: set[DeviceId]) -> None:
        if held:
            self.free_devices[node] = [device for device in self.free_devices[node] if device not in held]
            self.free_gpus[node] = len(self.free_devices[node]) * bool(self.open_nodes[node])


def _shapes_of(spec: JobSpec | None) -> dict[str, Shape]:
    """What a task of each group takes."""
    return {group.name: group.shape for group in reversed(spec.task_groups)} if spec else {}
