"""What is free in a snapshot: devices are taken from it and given back while a round decides."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Self

import numpy as np

from solver.capacity.free_amounts import FreeAmounts
from solver.capacity.free_resources import FreeResources
from solver.capacity.inventory import NodeInventory, inventory_of, renewed
from solver.capacity.masks import masks_of
from solver.capacity.mig_gpus import MigRule
from solver.capacity.partitions import MigPartitions
from solver.capacity.pool_rules import NO_RULES, PoolRules
from solver.capacity.shared_gpus import SharedGpu, best_fit, dealt, with_owner, with_share, without_share
from solver.model.arrays import Mask
from solver.model.cluster import DeviceId, Node
from solver.model.node_sets import NodeSet
from solver.model.pledges import NOTHING, Pledged, pledges_in
from solver.model.quantities import MILLI_PER_GPU, MilliGpu
from solver.model.round_cache import RoundCache
from solver.model.shape import MigShape, Shape, SharedShape, TrustDomain
from solver.model.snapshot import HeldTasks, Snapshot, held_in
from solver.model.workload import JobName, JobSpec, MigSlot, QueueName, TaskPlacement

DomainOf = Callable[[str, QueueName], TrustDomain]
"""The trust domain of a queue in a pool."""

Held = tuple[TaskPlacement, Shape, TrustDomain]
"""A task, what it takes, and in which domain if it has a share."""

NO_SHAPE = Shape()
NO_DOMAIN = TrustDomain("")


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
    ) -> FreeCapacity:
        """The room left by everything that holds devices, whether running, starting, stopping or merely asked for.

        `leaving`: jobs to count as gone from where they are; what they were promised stays theirs. `kept`: has the room of the
        snapshot before, so that this takes as long as there are changes.
        """
        latest = LatestCapacity() if kept is None else kept.lasting("free capacity", LatestCapacity)
        room = latest.of(snapshot, domain_of, mig, leaving)
        room.partitions.changes_left = dict(mig.changes_left)
        room.set_aside(NOTHING.union(*pledges_in(snapshot.nodes, snapshot.in_flight).values()))
        return room

    @classmethod
    def empty(cls, nodes: tuple[Node, ...], mig: PoolRules = NO_RULES, node_sets: Iterable[NodeSet] = ()) -> Self:
        """The room of a cluster where nothing runs; every node and GPU counts, broken or not."""
        inventory = inventory_of(nodes)
        partitions = MigPartitions.of(nodes, mig, broken_too=True)
        return cls._over(inventory, np.ones(len(nodes), dtype=bool), inventory.whole, node_sets, partitions)

    @classmethod
    def without_tasks(cls, snapshot: Snapshot, inventory: NodeInventory, mig: PoolRules) -> Self:
        """The room of the nodes of a snapshot, of which this is the inventory, if nothing ran there."""
        partitions = MigPartitions.of(snapshot.nodes, mig, broken_too=False)
        return cls._over(inventory, inventory.is_open, inventory.healthy, snapshot.node_sets, partitions)

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
            free_beside=FreeAmounts(opened, known.beside),
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
            if shape.devices > 1:
                return self._take_shares(node, shape, tasks)
            return [(self._take_share(node, shape),) for _ in range(tasks)]
        self._will_change(node)
        self._take_beside(node, shape, tasks)
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
        self._take_beside(node, shape, tasks)
        slots = self.partitions.take(node, shape, tasks, self.free_devices[node])
        self._not_free(node, {slot.gpu for slot in slots})
        return slots

    def _take_beside(self, node: int, shape: Shape, tasks: int) -> None:
        """CPU, memory and others of so many tasks; less than 0: they are given back."""
        self.free_cpu[node] -= shape.cpu * tasks
        self.free_memory[node] -= shape.memory * tasks
        if shape.resources:
            self.free_beside.take(node, shape.resources.items(), tasks)

    def has_free(self, tasks: Iterable[tuple[TaskPlacement, Shape]]) -> bool:
        """Whether all these tasks could be where they say, on exactly their devices."""
        with self.trying():
            taken = set[tuple[str, int]]()
            for task, shape in tasks:
                if not self._offers_to(task, shape):
                    return False
                self.occupy([(task, shape)])
                taken.update((name, self.index[task.node]) for name in shape.beside)
            return all(self.free_beside[name][node] >= 0 for name, node in taken)

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
        shapes = shapes_of(spec)
        for task in tasks:
            node = self.index[task.node]
            self.changes.gain()
            self._hold(node, *self.held_by(spec, shapes, task, domain_of), is_new=False)

    def held_by(
        self, spec: JobSpec | None, shapes: Mapping[str, Shape], task: TaskPlacement, domain_of: DomainOf
    ) -> Held:
        """What a task of a job takes, and in which domain. `shapes`: those of its groups."""
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
        self._take_beside(node, shape, -1)
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
        free.update(slot.gpu for slot in task.slots if self.partitions.give_back(node, slot))
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

    def _take_shares(self, node: int, shape: SharedShape, tasks: int) -> list[tuple[DeviceId, ...]]:
        """Shares of several GPUs for each task: of those that are divided, the fullest first, and then of whole ones."""
        domain = self._domain_of_share(node, shape)
        divided = sorted(self.shared.get(node, ()), key=lambda gpu: (gpu.free_milli, gpu.device))
        slots = [(gpu.device, gpu.slots(shape.milli, domain)) for gpu in divided]
        slots += [(device, MILLI_PER_GPU // shape.milli) for device in self.free_devices[node]]
        taken = dealt(slots, tasks, shape.devices)
        for devices in taken:
            share = TaskPlacement("", 0, self.nodes[node].name, devices, MilliGpu(shape.milli))
            self._hold(node, share, shape, domain)
        return taken

    def _domain_of_share(self, node: int, shape: SharedShape) -> TrustDomain:
        domain = shape.domain(self.nodes[node].pool)
        if domain is None:
            raise AssertionError(f"no GPU of pool {self.nodes[node].pool} may be shared by this task")
        return domain

    def _take_share(self, node: int, shape: SharedShape) -> DeviceId:
        """A share of the divided GPU that it fills best, else of one that is divided for it."""
        domain = self._domain_of_share(node, shape)
        device = best_fit(self.shared.get(node, ()), shape.milli, domain) or self.free_devices[node][0]
        share = TaskPlacement("", 0, self.nodes[node].name, (device,), MilliGpu(shape.milli))
        self._hold(node, share, shape, domain)
        return device

    def _offers_to(self, task: TaskPlacement, shape: Shape) -> bool:
        node = self.index[task.node]
        whole = set(self.free_devices[node])
        if task.mig is not None:
            return self.partitions.offers_all(node, task.slots, whole)
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
        self._take_beside(node, shape, 1)
        if task.share is not None or node in self.shared:
            self._hold_share(node, task, domain)
        for slot in task.slots if is_new else ():
            self.partitions.hold(node, slot)
        if task.mig is not None and not is_new:
            self._confirm(node, task.slots)
        for device in task.devices if node in self.partitions.rules else ():
            self.partitions.drop(node, device, counted=is_new)
        self._not_free(node, {*task.devices, *task.on_gpus})

    def hold_all(self, held: Mapping[int, Sequence[Held]]) -> None:
        """All that is held on these nodes, on which nothing is held yet."""
        for node, tasks in held.items():
            self._hold_together(node, tasks)
        nodes = list(held)
        self.free_gpus[nodes] = [len(self.free_devices[node]) for node in nodes] * self.open_nodes[nodes]
        # In the same order, whatever was there before.
        shared = sorted(self.shared.items())
        self.shared.clear()
        self.shared.update(shared)

    def empty_nodes(self, inventory: NodeInventory, nodes: Collection[int], mig: PoolRules) -> None:
        """Nothing is held on these nodes of an inventory, which may have other GPUs than before."""
        before, self.nodes = self.nodes, inventory.nodes
        if before is not self.nodes:
            same = {node: ids for node, ids in self._healthy_by_node.items() if before[node] is self.nodes[node]}
            self._healthy_by_node = same
        for node in nodes:
            self._will_change(node)
            self.free_devices[node] = inventory.healthy[node]
            self.shared.pop(node, None)
            self.partitions.empty(node, inventory.nodes[node], mig)
        numbers = list(nodes)
        is_open = self.open_nodes[numbers]
        self.free_gpus[numbers] = [len(inventory.healthy[node]) for node in numbers] * is_open
        self.free_beside.empty(numbers, inventory.beside)
        self.changes.gain()

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
        for resources in [shape.resources for _, shape, _ in tasks if shape.resources]:
            self.free_beside.take(node, resources.items(), 1)
        devices = {device for task, _, _ in tasks for device in task.devices}
        self.free_devices[node] = [device for device in self.free_devices[node] if device not in devices]
        if slots := [slot for task, _, _ in tasks for slot in task.slots]:
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


def shapes_of(spec: JobSpec | None) -> dict[str, Shape]:
    """What a task of each group takes."""
    return {group.name: group.shape for group in reversed(spec.task_groups)} if spec else {}


class LatestCapacity:
    """What is free in the latest snapshot, before its round gives any of it away.

    The next snapshot's follows from it by what changed: nodes whose GPUs are others, and those on which something else is held, are
    filled anew, by the same code that fills all of them where there is no snapshot before, or where more is other than that.
    """

    def __init__(self) -> None:
        self._room: FreeCapacity | None = None
        self._inventory: NodeInventory | None = None
        self._rules: Mapping[str, MigRule] = {}
        self._sets: tuple[NodeSet, ...] = ()
        self._held: Mapping[Hashable, HeldTasks] = {}
        self._domains: dict[tuple[str, QueueName], TrustDomain] = {}

    def of(
        self, snapshot: Snapshot, domain_of: DomainOf, mig: PoolRules, leaving: Collection[JobName] = ()
    ) -> FreeCapacity:
        """A room of one's own, of a snapshot of which nothing is pledged; `leaving` as in `FreeCapacity.of`."""
        latest = self._follow(snapshot, domain_of, mig)
        room = latest.lent()
        if leaving and self._inventory is not None:
            held = held_in(snapshot, leaving)
            nodes = _nodes_of(_differing(self._held, held), room)
            room.empty_nodes(self._inventory, nodes, mig)
            self._fill(room, nodes, held, domain_of)
        return room

    def _follow(self, snapshot: Snapshot, domain_of: DomainOf, mig: PoolRules) -> FreeCapacity:
        room, held = self._room, held_in(snapshot)
        self._room = None  # Until it is whole again: what fails half-way is not built upon.
        known = renewed(self._inventory, snapshot.nodes) if self._inventory else None
        if room is None or known is None or self._rules != mig.rules or not self._has_domains(domain_of):
            inventory = inventory_of(snapshot.nodes)
            room, nodes = FreeCapacity.without_tasks(snapshot, inventory, mig), set(range(len(snapshot.nodes)))
            self._domains.clear()
        else:
            inventory, changed = known
            if self._sets != snapshot.node_sets:
                room.limit_to(masks_of(snapshot.node_sets, snapshot.nodes))
            nodes = {*changed, *_nodes_of(_differing(self._held, held), room)}
            room.empty_nodes(inventory, nodes, mig)
        self._fill(room, nodes, held, domain_of)
        room.settle()
        self._inventory, self._rules, self._sets = inventory, mig.rules, snapshot.node_sets
        self._held, self._room = held, room
        return room

    def _has_domains(self, domain_of: DomainOf) -> bool:
        """Whether queues are still in the trust domains by which tasks were put on shared GPUs."""
        return all(domain_of(*known) == domain for known, domain in self._domains.items())

    def _fill(
        self, room: FreeCapacity, nodes: Collection[int], held: Mapping[Hashable, HeldTasks], domain_of: DomainOf
    ) -> None:
        """All that is held on these empty nodes, in the order of the snapshot."""

        def domain(pool: str, queue: QueueName) -> TrustDomain:
            found = self._domains[pool, queue] = domain_of(pool, queue)
            return found

        if not nodes:
            return
        asked = {room.nodes[node].name: node for node in nodes}
        on_node = defaultdict[int, list[Held]](list)
        for spec, tasks in held.values():
            # A node that has left the inventory gives nothing away.
            there = [task for task in tasks if task.node in asked]
            shapes = shapes_of(spec) if there else {}
            for task in there:
                on_node[asked[task.node]].append(room.held_by(spec, shapes, task, domain))
        room.hold_all(on_node)


def _differing(before: Mapping[Hashable, HeldTasks], after: Mapping[Hashable, HeldTasks]) -> Iterator[TaskPlacement]:
    """The tasks of all that is held otherwise than before, or only in one of the two."""
    for key, now in after.items():
        was = before.get(key)
        if was is None:
            yield from now.tasks
        elif (was.tasks is not now.tasks or was.spec is not now.spec) and was != now:
            yield from was.tasks
            yield from now.tasks
    for key in before.keys() - after.keys():
        yield from before[key].tasks


def _nodes_of(tasks: Iterable[TaskPlacement], room: FreeCapacity) -> set[int]:
    return {room.index[task.node] for task in tasks if task.node in room.index}
