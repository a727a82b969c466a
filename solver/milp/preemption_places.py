"""Where the jobs of a preemption program go: rows for every node, so that what it promises fits.

On a node tasks take what is free of GPUs and beside them, and what jobs leave. In small clusters each node keeps what a job
leaves for those for whom it may leave: for each set of jobs there is a row about the tasks of those for whom no other may leave
(Hall's condition). In larger ones that is asked of the cluster as a whole.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import NamedTuple

import msgspec
import numpy as np

from solver.capacity.free_capacity import FreeCapacity
from solver.capacity.reserved_view import NOBODY, seen
from solver.milp.ample_types import AmpleTypes
from solver.milp.instance_slots import InstanceSlots, Profile
from solver.milp.preemption_flows import KeptApart, NodeReleases, PlacedJobs, SlotKind, TaskKind
from solver.milp.preemption_program import PreemptionProgram, ServedColumn
from solver.model.amounts import CPU, MEMORY, NONE
from solver.model.arrays import Ints, Mask
from solver.model.cluster import LEVELS, DeviceId, GpuType, Level
from solver.model.quantities import MILLI_PER_GPU, Cpu, Memory
from solver.model.shape import MigShape, Shape, SharedShape, TrustDomain
from solver.model.workload import Job
from solver.quota.dominance import HostUse

EXACT_NODES_MAX = 8
"""Nodes up to which each of them keeps what a job leaves for those for whom it may leave."""


class Opening(NamedTuple):
    """Where free GPUs are divided anew: for tasks of a trust domain that wait for the same jobs to leave, or for nobody."""

    node: int
    domain: TrustDomain
    mask: int
    still: bool


class FractionedGpu(NamedTuple):
    """A GPU in fractions: what is free of it, for which trust domain, what holders have, and the column of its becoming whole.

    `moving`: what it gets back by columns of jobs that move.
    """

    node: int
    free_milli: int
    domain: TrustDomain | None
    shares: Sequence[tuple[int, int]]
    moving: Sequence[tuple[int, int]]
    whole: int


@dataclass(slots=True)
class PreemptionPlaces:
    """The rows of nodes. `on`: by slot and node the column that counts its tasks; `parts`: the same by GPU that is divided.

    `still`: the nodes that nobody is about to leave, where jobs may go on. `ample`: the GPU types on whose nodes there is enough
    beside whatever GPUs are had there; in small clusters it is not asked. `opened`: the columns of GPUs that are divided
    anew; `on_opened`: by slot and node those that count its tasks on each of these. `in_cell`: by kind of task and cell how many
    are there; cells are the closest domains to which any gang keeps.
    """

    program: PreemptionProgram
    room: FreeCapacity
    still: Mask
    ample: frozenset[GpuType] = frozenset()
    cell_of: Ints = field(init=False)
    instances: InstanceSlots = field(init=False)
    masks: list[Mask] = field(default_factory=list)
    on: dict[SlotKind, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    parts: dict[SlotKind, dict[DeviceId, int]] = field(default_factory=lambda: defaultdict(dict))
    opened: dict[Opening, list[int]] = field(default_factory=lambda: defaultdict(list))
    on_opened: dict[SlotKind, dict[int, list[int]]] = field(default_factory=lambda: defaultdict(dict))
    divided: dict[DeviceId, FractionedGpu] = field(default_factory=dict)
    in_cell: dict[TaskKind, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    _mask_of: dict[int, int] = field(default_factory=dict)
    _released: dict[int, list[NodeReleases]] = field(default_factory=lambda: defaultdict(list))
    """By node, with the number of the holder."""
    _moved: dict[int, list[NodeReleases]] = field(default_factory=lambda: defaultdict(list))
    """By node, with the column of the job that moves."""

    def state(self) -> None:
        """Write all columns and rows."""
        self._number_masks()
        self._released_by_node()
        if not self.is_exact:
            self.ample = AmpleTypes(self.program, self.room, self._released, self._moved).found()
        self._columns_of_divided()
        holders = self.program.attempts.evictable.allocations.holders
        leaving = {number: holders[number].job for number in self.program.leaving}
        self.instances = InstanceSlots(self.program.builder, self.room, leaving, changes=self.is_exact)
        placed = list(self._jobs())
        self.cell_of = self._cells(placed)
        wanted = defaultdict[TaskKind, dict[int, float]](lambda: defaultdict(float))
        for jobs in placed:
            for flow in jobs.flows:
                wanted[flow.kind][jobs.column] += float(flow.tasks)
        self._columns_of_slots(wanted)
        self._rows_of_cells(wanted)
        for jobs in placed:
            self._rows_of_jobs(jobs)
        self._rows_of_nodes()
        self.instances.state()

    @property
    def is_exact(self) -> bool:
        """Whether each node keeps what a job leaves for those for whom it may leave."""
        return len(self.room.nodes) <= EXACT_NODES_MAX

    def jobs_of(self, column: int, served: ServedColumn) -> PlacedJobs:
        """What jobs that are served send to nodes."""
        first, mask, still = served.job_class.first, self._mask_of[served.family], served.manner == "firm"
        spec, option = first.job.spec, served.option
        exceeds = self.program.host.shares.asks_beyond(spec, option)

        def slot_of(shape: Shape, gpu_type: GpuType | None) -> SlotKind:
            return SlotKind(
                self._seen(shape, gpu_type), gpu_type, first.against, mask, still, moves=False, exceeds=exceeds
            )

        counts = (group.least for group in spec.task_groups)
        return PlacedJobs.of(column, served.level, spec, option, counts, slot_of)

    def mover(self, place: int, column: int) -> PlacedJobs:
        """What a job that moves sends to nodes."""
        mover = self.program.movers[place]

        def slot_of(shape: Shape, gpu_type: GpuType | None) -> SlotKind:
            return SlotKind(self._seen(shape, gpu_type), gpu_type, NOBODY, 0, still=True, moves=True)

        level = self._level_of_mover(place)
        return PlacedJobs.of(column, level, mover.job.spec, mover.option, mover.tasks, slot_of)

    def by_node(self, slot: SlotKind) -> Iterator[tuple[int, int]]:
        """The columns that count tasks of a slot, each with its node."""
        yield from self.on[slot].items()
        yield from ((self.divided[device].node, column) for device, column in self.parts[slot].items())
        yield from ((node, column) for node, columns in self.on_opened[slot].items() for column in columns)

    def _seen(self, shape: Shape, gpu_type: GpuType | None) -> Shape:
        """What counts of a shape on nodes of a type."""
        if gpu_type not in self.ample:
            return shape
        # Whichever types it lists, these are nodes of one of them.
        return msgspec.structs.replace(shape, gpu_types=(), cpu=Cpu(0), memory=Memory(0), resources=NONE)

    def _number_masks(self) -> None:
        """Sets of jobs that may leave for somebody: nobody, and by family those that may.

        In larger clusters these are all that have GPUs, and those without GPUs that may.
        """
        count = len(self.program.attempts.evictable.allocations.holders)
        self.masks.append(np.zeros(count, dtype=bool))
        known = {self.masks[0].tobytes(): 0}
        for number, family in enumerate(self.program.families):
            lawful = family.lawful
            if not self.is_exact and lawful.any():
                lawful = lawful | ~self.program.host.alone
            key = lawful.tobytes()
            if key not in known:
                known[key] = len(self.masks)
                self.masks.append(lawful)
            self._mask_of[number] = known[key]
        everybody = np.ones(count, dtype=bool)
        if everybody.tobytes() not in known:
            self.masks.append(everybody)

    def _jobs(self) -> Iterator[PlacedJobs]:
        """What is served, and what moves."""
        for column, served in self.program.served.items():
            yield self.jobs_of(column, served)
        for place, column in self.program.moving.items():
            yield self.mover(place, column)

    def _level_of_mover(self, place: int) -> Level | None:
        """The level of which it stays in one domain: the one it has to, or the closest in which it is now, where that matters."""
        job = self.program.movers[place].job
        topology = job.spec.effective_topology
        if topology.levels:
            nodes = [self.room.index[task.node] for task in job.placement]
            for level in LEVELS:
                if len(set(self.room.topology[level].of_node[nodes].tolist())) == 1:
                    return level
        return topology.required

    def _cells(self, placed: Iterable[PlacedJobs]) -> Ints:
        """By node its cell: the closest domain that matters to any job; one for all where none does."""
        asked = {level for jobs in placed for level in jobs.levels}
        closest = next((level for level in LEVELS if level in asked), None)
        if closest is None:
            return np.zeros(len(self.room.nodes), dtype=np.int64)
        cells: Ints = self.room.topology[closest].of_node
        return cells

    def _released_by_node(self) -> None:
        held = self.program.attempts.evictable.allocations
        for number in self.program.leaving:
            for node, release in self._releases(number, held.holders[number].job):
                self._released[node].append(release)
        for place, column in self.program.moving.items():
            for node, release in self._releases(column, self.program.movers[place].job):
                self._moved[node].append(release)

    def _releases(self, who: int, job: Job) -> Iterator[tuple[int, NodeReleases]]:
        """Task by task the node, and what it gets back."""
        shapes = {group.name: group.shape for group in job.spec.task_groups}
        for task in job.placement:
            node = self.room.index.get(task.node)
            if node is None or not self.room.open_nodes[node]:
                continue
            shape, whole = shapes.get(task.group, Shape()), 0
            if task.share is None and task.mig is None:
                healthy = {gpu.id for gpu in self.room.nodes[node].gpus if gpu.healthy and gpu.instances is None}
                whole = len(healthy.intersection(task.devices))
            yield node, NodeReleases(who, whole, shape.beside)

    def _columns_of_divided(self) -> None:
        """GPUs in fractions: of each what its holders have, and whether it becomes whole."""
        held = self.program.attempts.evictable.allocations
        shares = _shares((number, held.holders[number].job) for number in self.program.leaving)
        moving = _shares((column, self.program.movers[place].job) for place, column in self.program.moving.items())
        for node, gpus in self.room.shared.items():
            for gpu in gpus if self.room.open_nodes[node] else ():
                if gpu.healthy and gpu.free_milli >= 0:
                    of_it, whole = (shares[gpu.device], moving[gpu.device]), self.program.builder.column(1)
                    self.divided[gpu.device] = FractionedGpu(node, gpu.free_milli, gpu.domain, *of_it, whole)

    def _columns_of_slots(self, wanted: Mapping[TaskKind, Mapping[int, float]]) -> None:
        most = defaultdict[SlotKind, float](float)
        for kind, columns in wanted.items():
            most[kind.slot] += sum(count * self.program.builder.most(column) for column, count in columns.items())
        for slot, tasks in most.items():
            room = seen(self.room, self.room.reserved if slot.moves else slot.against)
            usable = room.usable(slot.shape, slot.gpu_type) & (self.still if slot.moves else True)
            for node in np.flatnonzero(usable).tolist():
                if isinstance(slot.shape, SharedShape):
                    self._columns_of_fractions(slot, slot.shape, node, tasks)
                elif fits := min(tasks, self._most_on(room, node, slot)):
                    self.on[slot][node] = self.program.builder.column(fits)

    def _columns_of_fractions(self, slot: SlotKind, shape: SharedShape, node: int, most: float) -> None:
        """On GPUs of their trust domain that are divided already, and on free ones that are divided for them."""
        domain, each = shape.domain(self.room.nodes[node].pool), MILLI_PER_GPU // shape.milli
        if domain is None:
            return
        builder = self.program.builder
        for device, gpu in self.divided.items():
            if gpu.node == node and gpu.domain == domain:
                self.parts[slot][device] = builder.column(min(most, each))
        free = int(self.room.free_gpus[node]) + (0 if slot.still else self._gpus_gained(node))
        opened = self.opened[Opening(node, domain, slot.mask, slot.still)]
        wanted = ceil(most / each)
        while len(opened) < min(free, wanted):
            opened.append(builder.column(1))
            if len(opened) > 1:
                builder.at_most({opened[-1]: 1.0, opened[-2]: -1.0}, 0.0)
        self.on_opened[slot][node] = [builder.column(min(most, each)) for _ in opened[:wanted]]

    def _gpus_gained(self, node: int) -> int:
        divided = sum(gpu.node == node for gpu in self.divided.values())
        return divided + sum(release.gpus for release in (*self._released[node], *self._moved[node]))

    def _most_on(self, room: FreeCapacity, node: int, slot: SlotKind) -> int:
        """Tasks that a node takes at most, once all have left who may where it waits for somebody."""
        shape, freed = slot.shape, () if slot.still else (*self._released[node], *self._moved[node])
        fits = [10**6]
        if shape.gpus:
            gained = 0 if slot.still else self._gpus_gained(node)
            fits.append((int(room.free_gpus[node]) + gained + self.instances.could_be_whole(node)) // shape.gpus)
        if isinstance(shape, MigShape):
            fits.append(self.instances.most(node, Profile.of(shape), still=slot.still))
        for name, need in shape.beside.items():
            if need:
                left = int(room.free_beside[name][node]) + sum(release.beside.get(name, 0) for release in freed)
                fits.append(max(0, left) // need)
        return min(fits)

    def _rows_of_cells(self, wanted: Mapping[TaskKind, Mapping[int, float]]) -> None:
        """How many tasks of each kind are in which cell: as many as are wanted, and as there are slots."""
        builder, of_slot = self.program.builder, defaultdict[SlotKind, list[TaskKind]](list)
        for kind in wanted:
            of_slot[kind.slot].append(kind)
        for slot, kinds in of_slot.items():
            there = defaultdict[int, list[int]](list)
            for node, column in self.by_node(slot):
                there[int(self.cell_of[node])].append(column)
            for kind in kinds:
                most = sum(count * builder.most(column) for column, count in wanted[kind].items())
                tied = kind.tied_to is not None
                self.in_cell[kind] = {cell: builder.column(most, integer=tied) for cell in there}
                tasks = dict.fromkeys(self.in_cell[kind].values(), 1.0)
                builder.equal({**tasks, **{column: -count for column, count in wanted[kind].items()}}, 0.0)
            for cell, columns in there.items():
                tasks = {self.in_cell[kind][cell]: 1.0 for kind in kinds}
                builder.equal({**tasks, **dict.fromkeys(columns, -1.0)}, 0.0)

    def _rows_of_jobs(self, jobs: PlacedJobs) -> None:
        """Which of their tasks are in one domain, and how many a domain has at most."""
        for known in jobs.together:
            self._rows_of_domains(jobs.column, known.times, known.tasks, known.level)
        for apart in jobs.apart:
            self._rows_of_spread(jobs.column, apart)

    def _rows_of_domains(self, column: int, times: int, tasks: Mapping[TaskKind, int], level: Level) -> None:
        """So many for each job keep to one domain of a level: how many are in which, with all of their tasks."""
        builder, domain_of_cell = self.program.builder, self._domains_of_cells(level)
        gangs = dict[int, int]()
        for kind, count in tasks.items():
            by_domain = defaultdict[int, list[int]](list)
            for cell, there in self.in_cell[kind].items() if count else ():
                by_domain[domain_of_cell[cell]].append(there)
            for domain, columns in by_domain.items():
                if domain not in gangs:
                    gangs[domain] = builder.column(times * builder.most(column))
                builder.at_most({**dict.fromkeys(columns, 1.0), gangs[domain]: -float(count)}, 0.0)
        builder.equal({**dict.fromkeys(gangs.values(), 1.0), column: -float(times)}, 0.0)

    def _rows_of_spread(self, column: int, apart: KeptApart) -> None:
        """No domain has more of a job's tasks than it may; of nodes, which are no cells, all of a cell together."""
        there = defaultdict[int, list[int]](list)
        for kind in apart.kinds:
            for cell, tasks in self.in_cell[kind].items():
                there[cell].append(tasks)
        if apart.level == "node":
            most = {cell: apart.most * int((self.cell_of == cell).sum()) for cell in there}
            domain_of_cell = {cell: cell for cell in there}
        else:
            domain_of_cell = self._domains_of_cells(apart.level)
            most = dict.fromkeys(domain_of_cell.values(), apart.most)
        by_domain = defaultdict[int, list[int]](list)
        for cell, columns in there.items():
            by_domain[domain_of_cell[cell]] += columns
        for domain, columns in by_domain.items():
            self.program.builder.at_most({**dict.fromkeys(columns, 1.0), column: -float(most[domain])}, 0.0)

    def _domains_of_cells(self, level: Level) -> dict[int, int]:
        return dict(zip(self.cell_of.tolist(), self.room.topology[level].of_node.tolist(), strict=True))

    def _rows_of_nodes(self) -> None:
        slots = [*dict.fromkeys((*self.on, *self.parts, *self.on_opened))]
        views = sorted({NOBODY, *(slot.against for slot in slots)}, key=sorted)
        nobody = self.masks[0]
        for mask in self.masks:
            inside = [slot for slot in slots if not (self.masks[slot.mask] & ~mask).any()]
            for against in views:
                seeing = [slot for slot in inside if not against or slot.against == against]
                self._rows(seeing, mask, seen(self.room, against), now=False)
        # What starts or goes on now waits for nobody.
        self._rows([slot for slot in slots if slot.still], nobody, self.room, now=True)
        if self.room.reserved:
            self._rows([slot for slot in slots if slot.moves], nobody, seen(self.room, self.room.reserved), now=True)
        self._rows_beyond_share(slots)
        for opening, opened in self.opened.items():
            for place, column in enumerate(opened):
                self._row_of_opened(slots, opening, place, column)

    def _row_of_opened(self, slots: Sequence[SlotKind], opening: Opening, place: int, column: int) -> None:
        """A free GPU that is divided among tasks of one trust domain."""
        pool = self.room.nodes[opening.node].pool
        tasks = {
            self.on_opened[slot][opening.node][place]: float(slot.shape.cost)
            for slot in slots
            if isinstance(slot.shape, SharedShape)
            and (slot.shape.domain(pool), slot.mask, slot.still) == opening[1:]
            and place < len(self.on_opened[slot].get(opening.node, ()))
        }
        self.program.builder.at_most({**tasks, column: -float(MILLI_PER_GPU)}, 0.0)

    def _rows(self, slots: Sequence[SlotKind], mask: Mask, room: FreeCapacity, *, now: bool) -> None:
        """The tasks of these slots fit in what is free and, unless they start `now`, what these holders and movers give back."""
        leaving, here = self.program.leaving, defaultdict[int, list[SlotKind]](list)
        moved = {} if now else self._moved
        wholes = self._wholes(mask, now=now)
        for slot in slots:
            for node in {node for node, _ in self.by_node(slot)}:
                here[node].append(slot)
        for node, there in here.items():
            released = (release for release in self._released[node] if mask[release.who])
            back = [*(release._replace(who=leaving[release.who]) for release in released), *moved.get(node, ())]
            whole = [column for device, column in wholes.items() if self.divided[device].node == node]
            self._row_of_gpus(node, there, int(room.free_gpus[node]), back, whole)
            self._rows_of_instances(node, there, mask, now=now)
            on_node = [(slot.shape, column) for slot in there for column in self._on_node(slot, node)]
            for name in (CPU, MEMORY, *sorted({name for shape, _ in on_node for name in shape.resources})):
                asked = {column: float(need) for shape, column in on_node if (need := shape.beside.get(name, 0))}
                given_back = [(release.who, release.beside.get(name, 0)) for release in back]
                self._row(asked, given_back, float(room.free_beside[name][node]))
        for device, gpu in self.divided.items():
            on_it = {self.parts[slot][device]: float(slot.shape.cost) for slot in slots if device in self.parts[slot]}
            if device in wholes and (mask.all() or wholes[device] != gpu.whole):
                on_it[wholes[device]] = float(MILLI_PER_GPU)
            given_back = [(leaving[number], milli) for number, milli in gpu.shares if mask[number]]
            self._row(on_it, [*given_back, *(() if now else gpu.moving)], float(gpu.free_milli))

    def _rows_of_instances(self, node: int, slots: Iterable[SlotKind], mask: Mask, *, now: bool) -> None:
        tasks = [(slot.shape, self.on[slot][node]) for slot in slots if isinstance(slot.shape, MigShape)]
        leaving = {number: column for number, column in self.program.leaving.items() if mask[number]} if tasks else {}
        for terms, there in self.instances.rows(node, tasks, leaving, now=now):
            self.program.builder.at_most(terms, there)

    def _wholes(self, mask: Mask, *, now: bool) -> dict[DeviceId, int]:
        """The GPUs in fractions that become whole for those for whom these holders may leave, with the columns that say so."""
        found, builder = dict[DeviceId, int](), self.program.builder
        for device, gpu in self.divided.items():
            if now or not (gpu.shares or gpu.moving):
                continue
            if all(mask[number] for number, _ in gpu.shares):
                found[device] = gpu.whole
            elif gpu.moving:
                # Who may not leave for them may move.
                found[device] = builder.column(1)
                builder.at_most({found[device]: 1.0, gpu.whole: -1.0}, 0.0)
        return found

    def _rows_beyond_share(self, slots: Iterable[SlotKind]) -> None:
        """What tasks ask for beyond what their GPUs carry is free, or leaves with GPUs."""
        host, leaving, beyond = self.program.host, self.program.leaving, defaultdict[int, dict[int, HostUse]](dict)
        for slot in slots:
            for node, _ in self.by_node(slot) if slot.exceeds and not slot.still else ():
                more = host.shares.beyond(slot.shape, self.room.nodes[node].pool)
                beyond[node] |= dict.fromkeys(self._on_node(slot, node), more) if any(more) else {}
        for node, asked in beyond.items():
            gone = [
                release._replace(who=leaving[release.who])
                for release in self._released[node]
                if not host.alone[release.who]
            ]
            back = [*gone, *self._moved.get(node, ())]
            self._row(
                {column: float(more.cpu) for column, more in asked.items() if more.cpu},
                [(release.who, release.beside[CPU]) for release in back],
                float(self.room.free_cpu[node]),
            )
            self._row(
                {column: float(more.memory) for column, more in asked.items() if more.memory},
                [(release.who, release.beside[MEMORY]) for release in back],
                float(self.room.free_memory[node]),
            )

    def _on_node(self, slot: SlotKind, node: int) -> Iterator[int]:
        if node in self.on[slot]:
            yield self.on[slot][node]
        yield from self.on_opened[slot].get(node, ())
        yield from (column for device, column in self.parts[slot].items() if self.divided[device].node == node)

    def _row_of_gpus(
        self,
        node: int,
        slots: Sequence[SlotKind],
        free: int,
        back: Sequence[NodeReleases],
        wholes: Sequence[int],
    ) -> None:
        asked, pool = dict[int, float](), self.room.nodes[node].pool
        for slot in slots:
            if isinstance(slot.shape, SharedShape):
                domain = slot.shape.domain(pool)
                if domain is not None:
                    asked |= dict.fromkeys(self.opened[Opening(node, domain, slot.mask, slot.still)], 1.0)
            elif slot.shape.gpus and node in self.on[slot]:
                asked[self.on[slot][node]] = float(slot.shape.gpus)
        changed = self.instances.gpus(node)
        asked |= {column: factor for column, factor in changed.items() if factor > 0}
        wholes = [*wholes, *(column for column, factor in changed.items() if factor < 0)]
        self._row(asked, [(release.who, release.gpus) for release in back], float(free), dict.fromkeys(wholes, -1.0))

    def _row(
        self,
        asked: Mapping[int, float],
        back: Sequence[tuple[int, int]],
        free: float,
        more: Mapping[int, float] | None = None,
    ) -> None:
        """What is asked for is free, or is given back. Where less than nothing is free, nothing is had before that is made good."""
        if not asked:
            return
        terms = {**asked, **(more or {})}
        for column, amount in back:
            terms[column] = terms.get(column, 0.0) - float(amount)
        builder = self.program.builder
        if free < 0:
            most = sum(amount * builder.most(column) for column, amount in asked.items())
            some = builder.column(1)
            builder.at_most({**asked, some: -most}, 0.0)
            builder.at_most({**terms, some: -free}, 0.0)
        else:
            builder.at_most(terms, free)


def _shares(jobs: Iterable[tuple[int, Job]]) -> defaultdict[DeviceId, list[tuple[int, int]]]:
    """By GPU, who has how much of it, of jobs with their numbers."""
    found = defaultdict[DeviceId, list[tuple[int, int]]](list)
    for who, job in jobs:
        for task in job.placement:
            if task.share is not None:
                found[task.devices[0]].append((who, int(task.share)))
    return found
