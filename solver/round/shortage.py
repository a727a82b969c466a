"""What is missing on the nodes for a gang to start there."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
import numpy as np

from solver.capacity.free_capacity import FreeCapacity
from solver.model.amounts import NONE, Amounts, is_port
from solver.model.arrays import Ints
from solver.model.cluster import GpuType
from solver.model.quantities import MILLI_PER_GPU, Cpu, Memory, MilliGpu
from solver.model.shape import MigShape, Shape, SharedShape, taking
from solver.model.workload import JobSpec, KeptGroups, TaskGroup, Unit
from solver.placement.closeness import tasks_that_fit, torn_bundle
from solver.placement.placement import has_place, placing_order
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
from solver.quota.options import Option, option_of_unit
from solver.round.instance_shortage import (
    beside_others,
    fit_in_turn,
    geometry_reason,
    least_freed,
    too_few_instances,
    without_hosts,
)


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
        shortage = {gpu_type: wanted - free for gpu_type, free, wanted in short}
        yield from self._beyond_count(spec, option, shortage)
        yield from self._scattered_parts(spec, option, shortage)
        uncut = {reason.group: reason for reason in too_few_instances(room, spec, option, shortage, milli_free)}
        yield from (reason for reason in uncut.values() if reason.gpu_type in shortage)
        scattered: list[MigGeometryReason | NoRoomReason | HostResources] = [
            reason
            for group, shape, gpu_type in zip(spec.task_groups, option.shapes, option.gpu_types, strict=True)
            if gpu_type not in shortage
            for reason in (
                (uncut[group.name],) if group.name in uncut else _too_few_slots(room, group, shape, gpu_type)
            )
        ]
        yield from scattered
        apart: list[AnyReason] = [] if short or scattered else list(_kept_apart(room, spec, option))
        if not (short or scattered or apart):
            apart = list(_groups_apart(room, spec, option, milli_free))
        if not (short or scattered or apart or spec.effective_topology.required):
            apart = list(_too_few_together(room, spec, option))
        yield from apart
        nothing_else = not (short or scattered or apart)
        if spec.effective_topology.required or nothing_else:
            domain = _roomiest_domain(room, spec, option, milli_free)
            elsewhere = _fit_elsewhere(room, spec, option, domain, {reason.group for reason in scattered})
            if domain.best_free < domain.wanted or nothing_else or elsewhere:
                yield domain

    def _beyond_count(self, spec: JobSpec, option: Option, shortage: Mapping[GpuType, int]) -> Iterator[AnyReason]:
        """What the GPUs that are free lack, and of what shape more of them have to be, where more of them alone would not do."""
        in_turn = dict(self._scattered_groups(spec, option, shortage))
        for number, (group, shape, gpu_type) in enumerate(
            zip(spec.task_groups, option.shapes, option.gpu_types, strict=True)
        ):
            if gpu_type is None or gpu_type not in shortage or not shape.gpus:
                continue
            alone, now = without_hosts(shape), self.room.open_nodes if self.room.partitions else None
            fits = in_turn.get(number, self.room.offer(alone, gpu_type).total)
            if option.gpu_types.count(gpu_type) == 1:
                fits = self.room.offer(alone, gpu_type, within=now).total
                free = self._free_whole(option, gpu_type)[self.room.usable(alone, gpu_type)]
                if least_freed(free, shape.cost, group.least - fits) > shortage[gpu_type]:
                    in_turn[number] = fits
            if number in in_turn and fits < group.least:
                limit = _limit_of(self.room, group)
                yield NoRoomReason(group.name, gpu_type, group.least, shape.cost, fits, *limit)
            if self.room.offer(shape, gpu_type).total < min(fits, group.least):
                yield from _too_little_beside(self.room, group, shape, gpu_type, min(fits, group.least))

    def _scattered_groups(
        self, spec: JobSpec, option: Option, shortage: Mapping[GpuType, int]
    ) -> Iterator[tuple[int, int]]:
        """By number how many tasks find room of groups that want whole GPUs of one type, where as many more of it would not do."""
        numbers = defaultdict[GpuType, list[int]](list)
        for number, (shape, gpu_type) in enumerate(zip(option.shapes, option.gpu_types, strict=True)):
            if gpu_type is not None and gpu_type in shortage and shape.gpus:
                numbers[gpu_type].append(number)
        for gpu_type, some in numbers.items():
            if not 1 < len(some) == option.gpu_types.count(gpu_type):
                continue
            free = self._free_whole(option, gpu_type)[reach(self.room, option, gpu_type)]
            order = [some[place] for place in placing_order(self.room, [option.shapes[number] for number in some])]
            asked = [(option.shapes[number].cost, spec.task_groups[number].least) for number in order]
            fits = packed(free, asked)
            wanted = [WantedParts(milli, fit, tasks - fit) for (milli, tasks), fit in zip(asked, fits, strict=True)]
            if parts_freed(free, wanted) > shortage[gpu_type]:
                yield from zip(order, fits, strict=True)

    def _free_whole(self, option: Option, gpu_type: GpuType) -> Ints:
        """Milli-GPU of each node that are free as whole GPUs."""
        if not self.room.partitions:
            return self._free(option)
        # An idle GPU counts as free also where it stays partitioned.
        return self.room.slots(taking(1, {}), gpu_type, within=self.room.open_nodes) * MILLI_PER_GPU

    def _scattered_parts(
        self, spec: JobSpec, option: Option, shortage: Mapping[GpuType, int]
    ) -> Iterator[NoRoomReason]:
        """The groups that want parts of GPUs, where as much more of them would not do, since no part spans two GPUs."""
        of_type: dict[GpuType, list[tuple[int, SharedShape]]] = {}
        for number, (shape, gpu_type) in enumerate(zip(option.shapes, option.gpu_types, strict=True)):
            if gpu_type is not None and gpu_type in shortage and isinstance(shape, SharedShape):
                of_type.setdefault(gpu_type, []).append((number, shape))
        several = any(len(shapes) > 1 for shapes in of_type.values())
        in_turn = fit_in_turn(self.room, spec, option) if several else ()
        for gpu_type, shapes in of_type.items():
            wanted, lacking = list[WantedParts](), list[NoRoomReason]()
            for number, shape in shapes:
                group = spec.task_groups[number]
                # Several groups find less together than each by itself.
                alone = self.room.offer(without_hosts(shape), gpu_type).total
                fits = min(in_turn[number] if len(shapes) > 1 else alone, group.least)
                wanted.append(WantedParts(shape.milli, fits * shape.devices, (group.least - fits) * shape.devices))
                reason = group.name, gpu_type, group.least, shape.cost, fits, *_limit_of(self.room, group)
                if fits < group.least:
                    lacking.append(NoRoomReason(*reason, shape.devices))
            if lacking and parts_freed(self._parts(shapes[0][1], gpu_type), wanted) > shortage[gpu_type]:
                yield from lacking

    def _parts(self, shape: SharedShape, gpu_type: GpuType) -> Ints:
        """What is free of each GPU that a task may share."""
        nodes = np.flatnonzero(self.room.usable(without_hosts(shape), gpu_type))
        begun = [
            gpu.free_milli
            for node in nodes.tolist()
            for gpu in self.room.shared.get(node, ())
            if gpu.healthy and gpu.free_milli > 0 and gpu.domain == shape.domain(self.room.nodes[node].pool)
        ]
        whole = np.full(int(self.room.free_gpus[nodes].sum()), MILLI_PER_GPU, dtype=np.int64)
        return np.concatenate([np.array(begun, dtype=np.int64), whole])

    def _free(self, option: Option) -> Ints:
        """Milli-GPU on each node that count for its shapes: the same for all that take GPUs as a whole."""
        in_parts = frozenset(shape for shape in option.shapes if isinstance(shape, SharedShape | MigShape))
        if in_parts not in self._milli_free:
            self._milli_free[in_parts] = self.room.milli_free(option.shapes)
        return self._milli_free[in_parts]


class WantedParts(NamedTuple):
    """Parts of GPUs of one size: so many that there is room for, and so many more."""

    milli: int
    fitting: int
    lacking: int


def packed(free: Ints, asked: Iterable[tuple[int, int]]) -> list[int]:
    """How many of so many parts of each size find room, each in the fullest that has it. `asked`: sizes, with how many parts."""
    left, fits = sorted(free.tolist()), list[int]()
    for milli, parts in asked:
        found = 0
        while found < parts and (at := bisect_left(left, milli)) < len(left):
            insort(left, left.pop(at) - milli)
            found += 1
        fits.append(found)
    return fits


def parts_freed(free: Ints, wanted: Iterable[WantedParts]) -> int:
    """How many milli-GPU have to become free, beside what is free of each GPU, where each part goes to the fullest that has it."""
    left = sorted(free.tolist())
    sizes = tuple(wanted)
    for size in sizes:
        for _ in range(size.fitting):
            at = bisect_left(left, size.milli)
            if at < len(left):
                insort(left, left.pop(at) - size.milli)
    freed = 0
    for size in sorted(sizes, reverse=True):
        for _ in range(size.lacking):
            # What is left of the emptiest that is not empty enough is made up.
            at = bisect_left(left, size.milli)
            freed += size.milli - (left.pop(at - 1) if at else 0)
    return freed


def _too_few_together(room: FreeCapacity, spec: JobSpec, option: Option) -> Iterator[AnyReason]:
    """Groups for which there are GPUs enough, and too few beside the groups before them; else, for which CPU and memory are."""
    if len(spec.task_groups) == 1:
        return
    ways = tuple(zip(spec.task_groups, option.shapes, option.gpu_types, strict=True))
    fits = fit_in_turn(room, spec, option)
    if all(fit >= group.least for fit, group in zip(fits, spec.task_groups, strict=True)):
        yield from _too_little_together(room, spec, option)
        return
    for number, (group, shape, gpu_type) in enumerate(ways):
        if gpu_type is None or fits[number] >= group.least:
            continue
        cut = beside_others(room, spec, option, number, fits[number]) if room.partitions else None
        if cut is not None and cut.fit_at_last >= group.least:
            yield cut
        else:
            limit = _limit_of(room, group)
            yield NoRoomReason(group.name, gpu_type, group.least, shape.cost, fits[number], *limit, shape.devices)


def _too_little_together(room: FreeCapacity, spec: JobSpec, option: Option) -> Iterator[HostResources | NoRoomReason]:
    """Groups for which there are CPU and memory enough beside GPUs, and too little beside the groups before them."""
    fits = fit_in_turn(room, spec, option, with_hosts=True)
    for number, (group, shape) in enumerate(zip(spec.task_groups, option.shapes, strict=True)):
        if fits[number] >= group.least:
            continue
        amounts: tuple[tuple[HostResource, int], ...] = (("cpu", shape.cpu), ("memory", shape.memory))
        asked = tuple(name for name, amount in amounts if amount)
        lacking = asked if len(asked) == 1 and not shape.resources else ()
        served, limit = option.gpu_types[number] or GpuType(""), _limit_of(room, group)
        if not (asked or shape.resources):
            yield NoRoomReason(group.name, served, group.least, shape.cost, fits[number], *limit, shape.devices)
            continue
        beside = group.name, served, Cpu(shape.cpu), Memory(shape.memory), group.least, fits[number]
        yield HostResources(*beside, *limit, lacking, resources=shape.resources)


def _kept_apart(room: FreeCapacity, spec: JobSpec, option: Option) -> Iterable[AnyReason]:
    """Groups for which there are slots enough, but not where their bundles and spreads allow them."""
    for number, group in enumerate(spec.task_groups):
        offer = room.offer(option.shapes[number], option.gpu_types[number])
        fits = tasks_that_fit(room, offer, spec, number)
        if fits >= group.least:
            continue
        torn = torn_bundle(room, offer, spec, number)
        if torn is not None and torn[0].within:
            bundle, fit = torn
            yield Bundles(group.name, torn[0].within, group.least, min(bundle.tasks, group.least), fit)
        for spread in (spec.topology.spread, group.topology.spread):
            if spread:
                yield TooClose(group.name, spread.level, spread.max_per_domain, group.least, fits)


def _groups_apart(room: FreeCapacity, spec: JobSpec, option: Option, milli_free: Ints) -> Iterator[Topology]:
    """Groups that find no place together, where the job would have one if they were apart: those for which no domain has room."""
    if not spec.kept_groups or not has_place(room, spec.without_together, option):
        return
    found = [_roomiest_domain(room, spec, option, milli_free, kept) for kept in spec.kept_groups]
    found = [_in_units(room, spec, option, *pair) for pair in zip(spec.kept_groups, found, strict=True)]
    short = [reason for reason in found if reason.units_that_fit < reason.units or reason.best_free < reason.wanted]
    yield from short or found


def _in_units(room: FreeCapacity, spec: JobSpec, option: Option, kept: KeptGroups, reason: Topology) -> Topology:
    """The reason, with how many units there is room for, where it is about such."""
    if not kept.sizes:
        return reason
    needed = kept.times([group.least for group in spec.task_groups])

    def too_many(count: int) -> bool:
        some = Unit(kept.groups, tuple(size * count for size in kept.sizes))
        return not has_place(room, spec.one_of(some), option_of_unit(option, some))

    fits = bisect_left(range(1, needed + 1), True, key=too_many)
    return msgspec.structs.replace(reason, units=needed, units_that_fit=fits)


def _too_few_slots(
    room: FreeCapacity, group: TaskGroup, shape: Shape, gpu_type: GpuType | None
) -> Iterable[MigGeometryReason | NoRoomReason | HostResources]:
    fits, now = room.offer(shape, gpu_type).total, room.open_nodes if room.partitions else None
    if fits >= group.least:
        # What is wanted can be had, but perhaps not with the changes of partitions that are left.
        if now is not None and room.offer(shape, gpu_type, within=now).total < group.least:
            yield geometry_reason(room, group, shape, gpu_type)
        return
    gpus_alone = without_hosts(shape)
    possible, there = (room.offer(gpus_alone, gpu_type, within=within).total for within in (None, now))
    if there < min(possible, group.least) or (isinstance(shape, MigShape) and possible < group.least):
        yield geometry_reason(room, group, gpus_alone, gpu_type)
    elif shape.uses_gpus and possible < group.least:
        name = gpu_type or GpuType("")
        yield NoRoomReason(group.name, name, group.least, shape.cost, fits, *_limit_of(room, group), shape.devices)
        return
    if fits < (enough := min(there, group.least)) or not shape.uses_gpus:
        yield from _too_little_beside(room, group, shape, gpu_type, enough)


def _limit_of(room: FreeCapacity, group: TaskGroup) -> tuple[str, int]:
    """The set of nodes that a group is limited to, and how many they are."""
    return group.nodes, int(room.sets[group.nodes].sum()) if group.nodes else 0


def _too_little_beside(
    room: FreeCapacity, group: TaskGroup, shape: Shape, gpu_type: GpuType | None, enough: int
) -> Iterator[HostResources]:
    """What there is too little of beside GPUs for `enough` tasks, for which there are GPUs."""
    fits, gpus_alone = room.offer(shape, gpu_type).total, without_hosts(shape)
    asked = GpuType("") if gpu_type is None else gpu_type, Cpu(shape.cpu), Memory(shape.memory)
    limit = _limit_of(room, group)
    lacking = tuple(_lacking(room, msgspec.structs.replace(shape, resources=NONE), gpu_type, enough))
    scarce = tuple(_scarce(room, gpus_alone, shape.resources, gpu_type, enough))
    for resource in scarce:
        yield HostResources(group.name, *asked, group.least, fits, *limit, resource=resource)
    if lacking or not scarce:
        together = NONE if lacking else shape.resources
        yield HostResources(group.name, *asked, group.least, fits, *limit, lacking, resources=together)


def _lacking(room: FreeCapacity, shape: Shape, gpu_type: GpuType | None, enough: int) -> Iterator[HostResource]:
    """Of CPU and memory that of which there is too little even if the other did not matter."""
    without_memory, without_cpu = (
        msgspec.structs.replace(shape, **{of: kind(0)}) for of, kind in (("memory", Memory), ("cpu", Cpu))
    )
    if room.offer(without_memory, gpu_type).total < enough:
        yield "cpu"
    if room.offer(without_cpu, gpu_type).total < enough:
        yield "memory"


def _scarce(
    room: FreeCapacity, gpus_alone: Shape, resources: Amounts, gpu_type: GpuType | None, enough: int
) -> Iterator[ScarceResource]:
    """The resources of which there is too little even if nothing else beside GPUs mattered."""
    for name, amount in resources.items():
        with_it = msgspec.structs.replace(gpus_alone, resources=Amounts([(name, amount)]))
        if room.offer(with_it, gpu_type).total < enough:
            free = room.free_beside[name][room.usable(with_it, gpu_type)]
            left = (free >= amount).sum() if is_port(name) else np.maximum(free, 0).sum()
            yield ScarceResource(name, amount, int(left))


def _fit_elsewhere(
    room: FreeCapacity, spec: JobSpec, option: Option, domain: Topology, groups: Collection[str]
) -> bool:
    """Whether tasks of these groups fit where fewer GPUs are free than in this domain, so that it matters where there are more."""
    domains = room.topology[domain.level]
    at = domains.names.index(domain.best_domain)
    for group, shape, gpu_type in zip(spec.task_groups, option.shapes, option.gpu_types, strict=True):
        if group.name in groups:
            offer = room.offer(shape, gpu_type)
            if offer.in_domains(domain.level)[at] < min(offer.total, group.least):
                return True
    return False


def _roomiest_domain(
    room: FreeCapacity, spec: JobSpec, option: Option, milli_free: Ints, kept: KeptGroups | None = None
) -> Topology:
    """Of the level that the job requires, or of that at which some of its groups keep together, or each unit of them."""
    level = (kept.level if kept else spec.effective_topology.required) or "pool"
    groups, domains = kept.groups if kept else (), room.topology[level]
    usable = np.zeros(len(room.nodes), dtype=bool)
    if kept:
        sizes = [kept.size(group, spec.task_groups[group].least) for group in groups]
        charge = sum(option.shapes[group].cost * size for group, size in zip(groups, sizes, strict=True))
        for group in groups:
            usable |= room.usable(option.shapes[group], option.gpu_types[group])
    else:
        charge = sum(option.charge.values())
        for gpu_type in option.charge:
            usable |= reach(room, option, gpu_type)
    free = np.bincount(domains.of_node, weights=milli_free * usable, minlength=len(domains.names))
    best = int(free.argmax())
    names = tuple(spec.task_groups[group].name for group in groups)
    return Topology(level, MilliGpu(charge), domains.names[best], MilliGpu(int(free[best])), names)
