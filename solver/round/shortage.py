"""What is missing on the nodes for a gang to start there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec
import numpy as np

from solver.capacity.free_capacity import FreeCapacity
from solver.model.amounts import NONE, Amounts, is_port
from solver.model.arrays import Ints
from solver.model.cluster import GpuType
from solver.model.quantities import Cpu, Memory, MilliGpu
from solver.model.shape import MigShape, Shape, SharedShape
from solver.model.workload import JobSpec, TaskGroup
from solver.placement.closeness import tasks_that_fit
from solver.placement.placement import has_place
from solver.placement.reach import limits_of, reach
from solver.plan.mig_reasons import MigGeometryReason
from solver.plan.reason import HostResource
from solver.plan.reasons import (
    AnyReason,
    Bundles,
    CapacityReason,
    HostResources,
    NoRoomReason,
    ScarceResource,
    TooClose,
    Topology,
)
from solver.quota.options import Option


@dataclass(frozen=True, slots=True)
class Shortage:
    """What is missing in one room, which stays as it is."""

    room: FreeCapacity
    _milli_free: dict[object, Ints] = field(default_factory=dict)

    def reasons(self, spec: JobSpec, option: Option) -> Iterator[AnyReason]:
        """What keeps a gang out; nothing where it would fit."""
        room, milli_free = self.room, self._free(option)
        if has_place(room, spec, option):
            return
        short = [
            (gpu_type, free, MilliGpu(wanted))
            for gpu_type, wanted in option.charge.items()
            if (free := MilliGpu(int(milli_free[reach(room, option, gpu_type)].sum()))) < wanted
        ]
        for gpu_type, free, wanted in short:
            yield CapacityReason(gpu_type, free, wanted, *limits_of(room, option, gpu_type))
        shortage = {gpu_type for gpu_type, _, _ in short}
        scattered = [
            reason
            for group, shape, gpu_type in zip(spec.task_groups, option.shapes, option.gpu_types, strict=True)
            if gpu_type not in shortage
            for reason in _too_few_slots(room, group, shape, gpu_type)
        ]
        yield from scattered
        apart = [] if short or scattered else list(_kept_apart(room, spec, option))
        yield from apart
        nothing_else = not (short or scattered or apart)
        if spec.effective_topology.required or nothing_else:
            domain = _roomiest_domain(room, spec, option, milli_free)
            if domain.best_free < domain.wanted or nothing_else:
                yield domain

    def _free(self, option: Option) -> Ints:
        """Milli-GPU on each node that count for its shapes: the same for all that take GPUs as a whole."""
        in_parts = frozenset(shape for shape in option.shapes if isinstance(shape, SharedShape | MigShape))
        if in_parts not in self._milli_free:
            self._milli_free[in_parts] = self.room.milli_free(option.shapes)
        return self._milli_free[in_parts]


def _kept_apart(room: FreeCapacity, spec: JobSpec, option: Option) -> Iterable[AnyReason]:
    """Groups for which there are slots enough, but not where their bundles and spreads allow them."""
    for number, group in enumerate(spec.task_groups):
        offer = room.offer(option.shapes[number], option.gpu_types[number])
        bundle, fits = spec.bundle_of(group), tasks_that_fit(room, offer, spec, number)
        if fits >= group.least:
            continue
        if bundle:
            yield Bundles(group.name, bundle.within, group.least, min(bundle.tasks, group.least), fits)
        for spread in (spec.topology.spread, group.topology.spread):
            if spread:
                yield TooClose(group.name, spread.level, spread.max_per_domain, group.least, fits)


def _too_few_slots(room: FreeCapacity, group: TaskGroup, shape: Shape, gpu_type: GpuType | None) -> Iterable[AnyReason]:
    fits = room.offer(shape, gpu_type).total
    if fits >= group.least:
        # What is wanted can be had, but perhaps not with the changes of partitions that are left.
        if room.partitions and room.offer(shape, gpu_type, within=room.open_nodes).total < group.least:
            yield _too_few_instances(room, group, shape, gpu_type)
        return
    name, limit = gpu_type or GpuType(""), (group.nodes, int(room.sets[group.nodes].sum()) if group.nodes else 0)
    gpus_alone = msgspec.structs.replace(shape, cpu=Cpu(0), memory=Memory(0), resources=NONE)
    if isinstance(shape, MigShape) and room.offer(gpus_alone, gpu_type).total < group.least:
        yield _too_few_instances(room, group, gpus_alone, gpu_type)
    elif not shape.uses_gpus or room.offer(gpus_alone, gpu_type).total >= group.least:
        cpu, memory = Cpu(shape.cpu), Memory(shape.memory)
        lacking = tuple(_lacking(room, group, msgspec.structs.replace(shape, resources=NONE), gpu_type))
        scarce = tuple(_scarce(room, group, gpus_alone, shape.resources, gpu_type))
        for resource in scarce:
            yield HostResources(group.name, name, cpu, memory, group.least, fits, *limit, resource=resource)
        if lacking or not scarce:
            together = NONE if lacking else shape.resources
            yield HostResources(group.name, name, cpu, memory, group.least, fits, *limit, lacking, resources=together)
    else:
        yield NoRoomReason(group.name, name, group.least, shape.cost, fits, *limit)


def _lacking(room: FreeCapacity, group: TaskGroup, shape: Shape, gpu_type: GpuType | None) -> Iterator[HostResource]:
    """Of CPU and memory that of which there is too little even if the other did not matter."""
    without_memory, without_cpu = (
        msgspec.structs.replace(shape, **{of: kind(0)}) for of, kind in (("memory", Memory), ("cpu", Cpu))
    )
    if room.offer(without_memory, gpu_type).total < group.least:
        yield "cpu"
    if room.offer(without_cpu, gpu_type).total < group.least:
        yield "memory"


def _scarce(
    room: FreeCapacity, group: TaskGroup, gpus_alone: Shape, resources: Amounts, gpu_type: GpuType | None
) -> Iterator[ScarceResource]:
    """The resources of which there is too little even if nothing else beside GPUs mattered."""
    for name, amount in resources.items():
        with_it = msgspec.structs.replace(gpus_alone, resources=Amounts([(name, amount)]))
        if room.offer(with_it, gpu_type).total < group.least:
            free = room.free_beside[name][room.usable(with_it, gpu_type)]
            left = (free >= amount).sum() if is_port(name) else np.maximum(free, 0).sum()
            yield ScarceResource(name, amount, int(left))


def _too_few_instances(
    room: FreeCapacity, group: TaskGroup, shape: Shape, gpu_type: GpuType | None
) -> MigGeometryReason:
    as_it_is, with_changes, at_last = (
        int(slots.sum())
        for slots in (
            room.slots(shape, gpu_type, fresh=False),
            room.slots(shape, gpu_type, within=room.open_nodes),
            room.slots(shape, gpu_type),
        )
    )
    left = _changes_left(room, gpu_type)
    name, profile = gpu_type or GpuType(""), shape.mig or ""
    return MigGeometryReason(group.name, name, profile, group.least, as_it_is, with_changes, at_last, left)


def _roomiest_domain(room: FreeCapacity, spec: JobSpec, option: Option, milli_free: Ints) -> Topology:
    level = spec.effective_topology.required or "pool"
    domains = room.topology[level]
    usable = np.zeros(len(room.nodes), dtype=bool)
    for gpu_type in option.charge:
        usable |= reach(room, option, gpu_type)
    free = np.bincount(domains.of_node, weights=milli_free * usable, minlength=len(domains.names))
    best = int(free.argmax())
    wanted = MilliGpu(sum(option.charge.values()))
    return Topology(level, wanted, domains.names[best], MilliGpu(int(free[best])))


def _changes_left(room: FreeCapacity, gpu_type: GpuType | None) -> int:
    """How many GPUs of a type may still be partitioned anew in this round."""
    pools = {node.pool for node in room.nodes if gpu_type in (None, node.gpu_type)}
    return sum(left for pool, left in room.partitions.changes_left.items() if pool in pools)
