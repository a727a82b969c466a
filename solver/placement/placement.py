"""Counts made concrete: puts a gang's tasks on nodes and devices, whole or not at all, best fit and in few domains."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, permutations
from typing import NamedTuple

import msgspec
import numpy as np

from solver.capacity.free_capacity import FreeCapacity
from solver.capacity.offers import Offer
from solver.capacity.partitions import MigPartitions
from solver.model.arrays import Counts, Mask
from solver.model.cluster import LEVELS, GpuType, Level, is_wider
from solver.model.pledges import Pledged
from solver.model.shape import MigShape, Shape, SharedShape, nodes_of
from solver.model.workload import JobSpec, TaskPlacement, Together, TopologyRequest, Unit
from solver.placement.closeness import Chosen, Domain, Manners, choose, more_tasks, room_in_domains
from solver.placement.device_assignment import ServedGroup, assign_devices, by_node, take
from solver.placement.homogeneous_gangs import has_room, is_homogeneous, lies_anyhow, says_it_all
from solver.placement.strain import near_data, strain_of, strains_at
from solver.quota.options import Option, option_of_unit

ONE_GPU = Shape(1)

ORDERS_MAX = 6
"""In so many orders the groups of a gang with bundles are placed, as long as they find no place: all of three groups."""


@dataclass(frozen=True, slots=True)
class PlacedGang:
    """A gang on its devices, and what it pays per GPU for lying further apart than it wishes (solver/placement/strain)."""

    tasks: tuple[TaskPlacement, ...]
    strain: float

    def pledged(self, before: MigPartitions, after: FreeCapacity) -> Pledged:
        """The GPUs that have to be partitioned anew before it is all there: as they were, and in the room where it is placed."""
        instances = ((task.node, slot) for task in self.tasks for slot in task.slots)
        wholes = ((task.node, device) for task in self.tasks if not task.mig for device in task.devices)
        return frozenset(
            (
                *((at, slot.gpu) for at, slot in instances if not after.partitions.stays(after.index[at], slot)),
                *((at, device) for at, device in wholes if before.is_divided(after.index[at], device)),
            )
        )


def place(
    room: FreeCapacity, spec: JobSpec, option: Option, within: Mask | None = None, tasks: Sequence[int] | None = None
) -> PlacedGang | None:
    """Take room for so many tasks of each group (None: the least it starts with) and say where; or take nothing, for None.

    Domains are tried from the levels the job prefers, then from the closest, to the widest it allows, in each level the
    one where it pays least for slow links, and of those the one that it fills best.
    A gang that reads data goes where they are near; one without GPUs leaves free GPUs the CPU and memory beside them, if it can.
    `within` narrows the nodes, as a hint from the program.
    """
    tasks = tasks or least_tasks(spec)
    if spec.data:
        within = _near_data(room, spec, option, within, tasks)
    if not any(option.gpu_types):
        return place_off_gpus(room, spec, option, within, tasks) or _place(room, spec, option, within, tasks)
    return _place(room, spec, option, within, tasks)


def has_place(room: FreeCapacity, spec: JobSpec, option: Option) -> bool:
    """Whether `place` finds one; takes nothing."""
    tasks = least_tasks(spec)
    if says_it_all(room, spec, option):
        return has_room(room, spec, option, tasks[0])
    if lies_anyhow(spec) and has_room(room, spec, option, tasks[0], fresh=False):
        return True
    return _found(room, spec, option, None, tasks) is not None


def place_off_gpus(
    room: FreeCapacity, spec: JobSpec, option: Option, within: Mask | None = None, tasks: Sequence[int] | None = None
) -> PlacedGang | None:
    """Take room on nodes that have no GPUs, else on such as have nothing of any left; None: only where that is further apart."""
    tasks = tasks or least_tasks(spec)
    used_up = room.free_gpus == 0
    used_up[[node for node, gpus in room.shared.items() if any(gpu.free_milli > 0 for gpu in gpus)]] = False
    for preferred in (room.of_type(GpuType("")), used_up):
        narrowed = preferred if within is None else preferred & within
        with room.trying():
            here = _place(room, spec, option, narrowed, tasks)
        if here is None:
            continue
        with room.trying():
            elsewhere = _place(room, spec, option, within, tasks) if here.strain else None
        if elsewhere is None or here.strain <= elsewhere.strain:
            return _place(room, spec, option, narrowed, tasks)
    return None


def _near_data(
    room: FreeCapacity, spec: JobSpec, option: Option, within: Mask | None, tasks: Sequence[int]
) -> Mask | None:
    """The nodes near its data, if a gang finds place there and pays no more than it would elsewhere; else all it may use."""
    near = near_data(room, spec.data) & (True if within is None else within)
    with room.trying():
        here = _place(room, spec, option, near, tasks)
    with room.trying():
        elsewhere = _place(room, spec, option, within, tasks) if here and here.strain else None
    return within if here is None or (elsewhere and elsewhere.strain < here.strain) else near


def _place(
    room: FreeCapacity, spec: JobSpec, option: Option, within: Mask | None, tasks: Sequence[int]
) -> PlacedGang | None:
    found = _found(room, spec, option, within, tasks)
    if found is None:
        return None
    if spec.has_inner_wishes and _strain_on(room, spec, found):
        # As they come, domains are tried whatever groups wish; those in which they have all of it are worth a look.
        wishing = _found(room, spec.with_wishes_required, option, within, tasks)
        if wishing is not None and _strain_on(room, spec, wishing) < _strain_on(room, spec, found):
            found = wishing
    placed = tuple(task for group, chosen in found for task in assign_devices(room, group, chosen))
    return PlacedGang(placed, strain_of(room, spec, placed))


def _strain_on(room: FreeCapacity, spec: JobSpec, found: Found) -> float:
    """What a gang pays on these nodes."""
    with room.trying():
        placed = tuple(task for group, chosen in found for task in assign_devices(room, group, chosen))
    return strain_of(room, spec, placed)


def _found(
    room: FreeCapacity, spec: JobSpec, option: Option, within: Mask | None, tasks: Sequence[int]
) -> Found | None:
    if is_homogeneous(spec, option) and not has_room(room, spec, option, tasks[0]):
        return None
    able: list[_Gang] = []
    coming = (gang for gang in _gangs(room, spec, option, within, tasks) if gang.fits_somewhere())
    for level in _levels(spec.effective_topology):
        for gang in _each(able, coming):
            found = gang.place_in_one(level) if level else gang.place_among(None)
            if found is not None:
                return found
    return None


def _each(known: list[_Gang], coming: Iterator[_Gang]) -> Iterator[_Gang]:
    """Those that are known, and those that only come to be known if none of them will do."""
    yield from tuple(known)
    for gang in coming:
        known.append(gang)
        yield gang


def _gangs(
    room: FreeCapacity, spec: JobSpec, option: Option, within: Mask | None, tasks: Sequence[int]
) -> Iterator[_Gang]:
    """The gang as it is tried at each level: one that asks for parts of GPUs first on those that are divided already."""
    in_parts = any(isinstance(shape, SharedShape | MigShape) for shape in option.shapes)
    made_whole = any(room.is_partitioned(*way) for way in zip(option.shapes, option.gpu_types, strict=True))
    if in_parts or made_whole:
        yield _Gang.of(room, spec, option, within, tasks, fresh=False)
    # Where no change is left, no GPU is made whole for it.
    if in_parts or not made_whole or room.partitions.may_change:
        yield _Gang.of(room, spec, option, within, tasks, fresh=True)


def placing_order(room: FreeCapacity, shapes: Sequence[Shape]) -> list[int]:
    """The groups of a gang, by number, in the order in which they are placed: the hardest first.

    Groups with GPUs are harder to place; of like ones those with fewer nodes, which others could take.
    """
    return sorted(range(len(shapes)), key=lambda number: _ease(room, shapes[number]))


def _ease(room: FreeCapacity, shape: Shape) -> tuple[int, int]:
    # A set that copies of this room alone know is no limit here.
    limit = room.sets.get(nodes_of(shape))
    return -shape.cost, len(room.nodes) if limit is None else int(limit.sum())


def least_tasks(spec: JobSpec) -> tuple[int, ...]:
    """Tasks of each group without which the gang does not start."""
    return tuple(group.least for group in spec.task_groups)


def grow(room: FreeCapacity, spec: JobSpec, option: Option, placed: PlacedGang, number: int, most: int) -> PlacedGang:
    """Take room for up to `most` more tasks of one group, as near to the others as can be, and say where all are."""
    group, asked = ServedGroup.of(spec, option, number), spec.effective_topology
    tasks = list(placed.tasks)
    nodes = [room.index[task.node] for task in tasks]
    first = sum(task.group == group.name for task in tasks)
    manners, shared = Manners.of(room, spec, placed.tasks), _shared_domain(room, spec, number, placed.tasks)
    for level in _reach(asked):
        own = [task for task in tasks if task.group == group.name]
        if len(own) == first + most:
            break
        near = room.topology[level].around(nodes) if level else room.open_nodes
        near = near if shared is None else near & shared
        offer = room.offer(group.shape, group.gpu_type, within=near & room.open_nodes).within(near)
        hosts = [room.index[task.node] for task in own]
        chosen = more_tasks(room, offer, first + most - len(own), group.bundles, manners.of_group(number), hosts)
        tasks += assign_devices(room, group, chosen, {task.index for task in own})
    return PlacedGang(tuple(tasks), strain_of(room, spec, tuple(tasks)))


def grow_by_units(
    room: FreeCapacity, spec: JobSpec, option: Option, placed: PlacedGang, unit: Unit, most: int
) -> PlacedGang:
    """Take room for up to `most` more units of tasks of several groups, each whole, as near to the others as can be."""
    alone, served = spec.one_of(unit), option_of_unit(option, unit)
    tasks, nodes = list(placed.tasks), [room.index[task.node] for task in placed.tasks]
    names = [group.name for group in alone.task_groups]
    size, free = dict(zip(names, unit.sizes, strict=True)), missing_units(spec, unit, placed.tasks)
    for level in _reach(spec.effective_topology):
        near = room.topology[level].around(nodes) & room.open_nodes if level else room.open_nodes
        while most and free:
            found = place(room, alone, served, near)
            if found is None:
                break
            number, most = free.pop(0), most - 1
            tasks += (
                msgspec.structs.replace(task, index=number * size[task.group] + task.index) for task in found.tasks
            )
    return PlacedGang(tuple(tasks), strain_of(room, spec, tuple(tasks)))


def complete_unit(
    room: FreeCapacity, spec: JobSpec, option: Option, placed: PlacedGang, unit: Unit, lacking: LackingUnit
) -> PlacedGang:
    """Take room for the tasks that one unit lacks, near those that it has where it has to be; all of them, or none."""
    groups = tuple(group for group, numbers in zip(unit.groups, lacking.indices, strict=True) if numbers)
    rest = Unit(groups, tuple(len(numbers) for numbers in lacking.indices if numbers))
    there = [room.index[task.node] for task in lacking.there]
    nodes, tasks = [room.index[task.node] for task in placed.tasks], list(placed.tasks)
    known = spec.together_of(spec.task_groups[unit.groups[0]])
    kept = [level for number in unit.groups for _, level in spec.kept_in_bundles(spec.task_groups[number])]
    kept += [known.within] if known and known.within else []
    for level in _reach(spec.effective_topology):
        near = room.topology[level].around(nodes) & room.open_nodes if level else room.open_nodes
        for closer in kept:
            near = near & room.topology[closer].around(there)
        found = place(room, spec.one_of(rest), option_of_unit(option, rest), near)
        if found is not None:
            by_group = zip(rest.groups, (numbers for numbers in lacking.indices if numbers), strict=True)
            free = {spec.task_groups[group].name: iter(numbers) for group, numbers in by_group}
            tasks += (msgspec.structs.replace(task, index=next(free[task.group])) for task in found.tasks)
            break
    return PlacedGang(tuple(tasks), strain_of(room, spec, tuple(tasks)))


class LackingUnit(NamedTuple):
    """A unit that has some of its tasks: those, and the indices of what it lacks of each of its groups."""

    there: tuple[TaskPlacement, ...]
    indices: tuple[tuple[int, ...], ...]


def torn_units(spec: JobSpec, unit: Unit, placed: Iterable[TaskPlacement]) -> list[LackingUnit]:
    """The units of which a gang with these tasks has a part, since it has lost some; none where they are made of bundles."""
    bundled = (size for number in unit.groups for size, _ in spec.kept_in_bundles(spec.task_groups[number]))
    if any(size < max(unit.sizes) for size in bundled):
        return []
    names = [spec.task_groups[number].name for number in unit.groups]
    size, there = dict(zip(names, unit.sizes, strict=True)), dict[int, list[TaskPlacement]]()
    for task in placed:
        if task.group in size:
            there.setdefault(task.index // size[task.group], []).append(task)
    found = list[LackingUnit]()
    for number, tasks in sorted(there.items()):
        if len(tasks) < sum(unit.sizes):
            known = {(task.group, task.index) for task in tasks}
            every = (range(number * size[name], (number + 1) * size[name]) for name in names)
            lacking = tuple(
                tuple(index for index in indices if (name, index) not in known)
                for name, indices in zip(names, every, strict=True)
            )
            found.append(LackingUnit(tuple(tasks), lacking))
    return found


def missing_units(spec: JobSpec, unit: Unit, placed: Iterable[TaskPlacement]) -> list[int]:
    """The numbers of the units of which a gang with these tasks has none, from the least."""
    groups = [spec.task_groups[number] for number in unit.groups]
    size = {group.name: step for group, step in zip(groups, unit.sizes, strict=True)}
    there = {task.index // size[task.group] for task in placed if task.group in size}
    return [number for number in range(groups[0].replicas // unit.sizes[0]) if number not in there]


def _shared_domain(room: FreeCapacity, spec: JobSpec, number: int, placed: Sequence[TaskPlacement]) -> Mask | None:
    """The nodes on which more tasks of a group are together with the groups that it has to be together with; None: any are."""
    known = spec.together_of(spec.task_groups[number])
    nodes = [room.index[task.node] for task in placed if known and known.units == 1 and task.group in known.groups]
    return room.topology[known.within].around(nodes[:1]) if known and known.within and nodes else None


def realised(room: FreeCapacity, spec: JobSpec, option: Option, hosts: Sequence[Sequence[int]]) -> PlacedGang:
    """Take room on exactly these nodes, one for each task of each group. The room must be there."""
    tasks = tuple(
        task
        for number, nodes in enumerate(hosts)
        for task in assign_devices(room, ServedGroup.of(spec, option, number), [(node, 1) for node in nodes])
    )
    return PlacedGang(tasks, strain_of(room, spec, tasks))


def _levels(asked: TopologyRequest) -> Iterator[Level | None]:
    # The preferred levels first, then from the closest to the required one. A gang that wishes nothing goes anywhere at
    # once: how nodes are chosen keeps it in few domains, without tearing others apart for a driver's sake.
    if not asked.levels:
        yield None
    elif asked.communication == "normal":
        yield from (level for level in asked.wishes if not is_wider(level, asked.required))
    yield from _reach(asked)


def _reach(asked: TopologyRequest) -> list[Level | None]:
    """The levels from the closest to the widest that it allows; what is spread goes as far as it may at once."""
    allowed = [level for level in (*LEVELS, None) if not is_wider(level, asked.required)]
    return allowed[-1:] if asked.placement == "spread" else allowed


Found = list[tuple[ServedGroup, Chosen]]
"""How many tasks of each group go on which nodes."""


@dataclass(slots=True)
class _Gang:
    """One gang being placed: its groups with their tasks, and how many tasks of each group every node takes.

    `within` None: on any node.
    """

    room: FreeCapacity
    spec: JobSpec
    groups: tuple[tuple[ServedGroup, int], ...]
    offers: list[Offer]
    within: Mask | None
    fresh: bool

    @classmethod
    def of(
        cls,
        room: FreeCapacity,
        spec: JobSpec,
        option: Option,
        within: Mask | None,
        tasks: Sequence[int],
        *,
        fresh: bool,
    ) -> _Gang:
        order = placing_order(room, option.shapes)
        groups = tuple((ServedGroup.of(spec, option, number), tasks[number]) for number in order)
        offers = [room.offer(group.shape, group.gpu_type, fresh=fresh) for group, _ in groups]
        if within is not None:
            offers = [offer.within(within) for offer in offers]
        return cls(room, spec, groups, offers, within, fresh)

    def fits_somewhere(self) -> bool:
        """Necessary, not sufficient: each group alone finds enough slots, with the changes of partitions that are left."""
        return all(
            offer.total >= tasks and self._together(group, offer, None).total >= tasks
            for (group, tasks), offer in zip(self.groups, self.offers, strict=True)
        )

    def place_in_one(self, level: Level) -> Found | None:
        """All tasks in one domain of the level, the one left fullest."""
        domains = self.room.topology[level]
        able = np.ones(len(domains.names), dtype=bool)
        manners = Manners.of(self.room, self.spec)
        for (group, tasks), offer in zip(self.groups, self.offers, strict=True):
            able &= room_in_domains(offer, level, domains.of_node, manners.of_group(group.number).limits) >= tasks
        candidates = np.flatnonzero(able)
        if not len(candidates):
            return None
        offered = self.room.offer(ONE_GPU, None, fresh=False)
        free = (offered if self.within is None else offered.within(self.within)).in_domains(level)
        strains = strains_at(self.room.topology, self.spec.effective_topology, level)
        for domain in candidates[np.lexsort((free[candidates], strains[candidates]))]:
            found = self.place_among((level, int(domain)))
            if found is not None:
                return found
        return None

    def place_among(self, domain: Domain | None) -> Found | None:
        """All tasks in this domain; None: anywhere."""
        manners = Manners.of(self.room, self.spec)
        if len(self.groups) > 1:
            found = self._place_groups_together(domain, manners)
            for other in self._in_other_orders() if found is None else ():
                found = other._place_groups_together(domain, Manners.of(self.room, self.spec))
                if found is not None:
                    break
            return found
        ((group, tasks),), (offer,) = self.groups, self.offers
        offer = self._together(group, offer, domain)
        chosen = choose(self.room, offer, tasks, group.bundles, manners.of_group(group.number), domain)
        return None if chosen is None else [(group, chosen)]

    def _in_other_orders(self) -> Iterator[_Gang]:
        """The same gang, whose groups are placed in another order: where bundles are, those of the first may take all the room."""
        if any(bundle.within for group, _ in self.groups for bundle in group.bundles):
            for order in islice(permutations(range(len(self.groups))), 1, ORDERS_MAX):
                groups, offers = (self.groups[n] for n in order), (self.offers[n] for n in order)
                yield replace(self, groups=tuple(groups), offers=list(offers))

    def _place_groups_together(self, domain: Domain | None, manners: Manners) -> Found | None:
        # Groups compete for the same nodes: what the first take is taken while the others are tried.
        at_first, found = [offer.slots.copy() for offer in self.offers], Found()
        with self.room.trying():
            for known, places in self._kept_groups():
                chosen = self._place_kept_groups(known, places, at_first, domain, manners)
                if chosen is None:
                    return None
                for group, hosts in chosen:
                    self._take(group, hosts)
                found += chosen
        return found

    def _kept_groups(self) -> Iterator[tuple[Together | None, list[int]]]:
        """The groups that keep to one domain, by their places among all; each other group by itself. The hardest first."""
        known = [self.spec.together_of(self.spec.task_groups[group.number]) for group, _ in self.groups]
        for place, kept in enumerate(known):
            # Units that may lie anyhow are as good as tasks that may.
            if kept is None or not (kept.units == 1 or kept.within or kept.wishes):
                yield None, [place]
            elif kept not in known[:place]:
                yield kept, [other for other in range(place, len(known)) if known[other] == kept]

    def _place_kept_groups(
        self,
        known: Together | None,
        places: Sequence[int],
        at_first: Sequence[Counts],
        domain: Domain | None,
        manners: Manners,
    ) -> Found | None:
        """Groups in one domain, as close as they wish if that can be; of units as many as each domain takes.

        `at_first`: by group the slots before any was placed.
        """
        if known is None or known.units == 1:
            return self._place_whole_groups(known, places, at_first, domain, manners)
        sizes = {place: self.spec.task_groups[self.groups[place][0].number].replica_step for place in places}
        left, hosts = self.groups[places[0]][1] // sizes[places[0]], dict[int, Chosen]((place, []) for place in places)
        with self.room.trying():
            for level in (*known.wishes, known.within):
                while left:
                    units, found = self._place_units(level, left, sizes, at_first, domain, manners)
                    if not found:
                        break
                    left -= units
                    for place, (group, chosen) in zip(places, found, strict=True):
                        self._take(group, chosen)
                        hosts[place] += chosen
        return None if left else [(self.groups[place][0], hosts[place]) for place in places]

    def _place_units(
        self,
        level: Level | None,
        most: int,
        sizes: Mapping[int, int],
        at_first: Sequence[Counts],
        domain: Domain | None,
        manners: Manners,
    ) -> tuple[int, Found | None]:
        """As many units of these sizes as one domain of a level takes; None: all of them anywhere. With how many they are.

        All units of a domain are placed at once: the largest tasks of all of them first.
        """
        if level is None:
            return most, self._place_side_by_side(
                [(at, size * most) for at, size in sizes.items()], at_first, domain, manners
            )
        able = [self._left(place, at_first).in_domains(level) // size for place, size in sizes.items()]
        for units in range(min(most, int(np.minimum.reduce(able).max(initial=0))), 0, -1):
            asked = [(place, size * units) for place, size in sizes.items()]
            found = self._place_groups_in_one(level, asked, at_first, domain, manners)
            if found is not None:
                return units, found
        return 0, None

    def _place_whole_groups(
        self,
        known: Together | None,
        places: Sequence[int],
        at_first: Sequence[Counts],
        domain: Domain | None,
        manners: Manners,
    ) -> Found | None:
        whole = [(place, self.groups[place][1]) for place in places]
        for level in known.wishes if known else ():
            found = self._place_groups_in_one(level, whole, at_first, domain, manners)
            if found is not None:
                return found
        if known and known.within:
            return self._place_groups_in_one(known.within, whole, at_first, domain, manners)
        return self._place_side_by_side(whole, at_first, domain, manners)

    def _place_groups_in_one(
        self,
        level: Level,
        places: Sequence[tuple[int, int]],
        at_first: Sequence[Counts],
        domain: Domain | None,
        manners: Manners,
    ) -> Found | None:
        """So many tasks of groups in one domain of a level, the one left fullest in which they find place."""
        if domain and not is_wider(domain[0], level):
            return self._place_side_by_side(places, at_first, domain, manners)
        topology, domains = self.room.topology, self.room.topology[level]
        able = np.ones(len(domains.names), dtype=bool)
        if domain:
            able &= topology[domain[0]].of_node[domains.first] == domain[1]
        for place, tasks in places:
            limits = manners.of_group(self.groups[place][0].number).limits
            able &= room_in_domains(self._left(place, at_first), level, domains.of_node, limits) >= tasks
        candidates = np.flatnonzero(able)
        free = self.room.offer(ONE_GPU, None, fresh=False).in_domains(level)
        for number in candidates[np.argsort(free[candidates], kind="stable")].tolist():
            before = manners.counted()
            found = self._place_side_by_side(places, at_first, (level, number), manners)
            if found is not None:
                return found
            manners.count_as(before)
        return None

    def _place_side_by_side(
        self,
        places: Sequence[tuple[int, int]],
        at_first: Sequence[Counts],
        domain: Domain | None,
        manners: Manners,
    ) -> Found | None:
        found = Found()
        with self.room.trying():
            for place, tasks in places:
                group = self.groups[place][0]
                offer = self._together(group, self._left(place, at_first), domain)
                chosen = choose(self.room, offer, tasks, group.bundles, manners.of_group(group.number), domain)
                if chosen is None:
                    return None
                found.append((group, chosen))
                if place != places[-1][0]:
                    self._take(group, chosen)
        return found

    def _left(self, place: int, at_first: Sequence[Counts]) -> Offer:
        now = self.room.slots(self.groups[place][0].shape, None, fresh=self.fresh)
        return Offer(np.minimum(at_first[place], now), self.room.topology)

    def _take(self, group: ServedGroup, hosts: Chosen) -> None:
        for node, count in by_node(hosts).items():
            take(self.room, node, group.shape, count)

    def _together(self, group: ServedGroup, offer: Offer, domain: Domain | None) -> Offer:
        """What the nodes take together, where the changes of partitions that are left do not do for each of them."""
        room, shape = self.room, group.shape
        if not self.fresh or not (isinstance(shape, MigShape) or room.is_partitioned(shape, group.gpu_type)):
            return offer
        nodes = room.open_nodes if self.within is None else room.open_nodes & self.within
        if domain:
            nodes = nodes & (room.topology[domain[0]].of_node == domain[1])
        together = room.slots(shape, group.gpu_type, within=nodes)
        return Offer(np.minimum(offer.slots, together) * nodes, room.topology)
