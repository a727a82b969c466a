"""Snapshot to program: how many gangs of each class start, as what, and how their tasks spread over the cells.

Columns: `a` gangs of a class served one way (GPU types, topology variant); `g` tasks by which these grow; `w` tasks, or whole
gangs where the level is no wider than a cell, of one kind in one cell; `e` and `f` GPUs of a segment inside guarantees and
inside fair shares; `y` whether all of a class that stands in line start; `o` whole GPUs of a cell that are divided for one
trust domain; `x` what a queue weighs above what it does not lend; `u` tasks in parts of split cells. There is no column per
node or per alike job.
Rows: no class starts more gangs than it has; every `a` finds its `w`; slots per cell; bundles in closer domains; max,
guarantee and fair share of every queue on the path; what is not lent; in strict queues no job before those ahead of it.
Layers: entitled demand, fair shares, what is left over, each by sub-layer; fit; weights of GPU types (docs/solver.md: formulas).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from solver.capacity.reserved_view import NOBODY, Against, seen
from solver.milp.builder import ProgramBuilder, summed
from solver.milp.capacity import CapacityRows, NewlySharedGpus
from solver.milp.cell_parts import Split
from solver.milp.cells import CapacityCell, Cells, bare, size_of
from solver.milp.classes import JobClass
from solver.milp.lending import ChargedColumn, LendingRows
from solver.milp.lines import LineRows, WayInLine
from solver.milp.ways import DemandColumn, FlowKind, GrowthColumn, Part, Way, by_segment
from solver.model.cluster import LEVELS, GpuType, Level, is_wider
from solver.model.quantities import MILLI_PER_GPU
from solver.model.shape import Shape
from solver.model.workload import KeptGroups, TopologyRequest
from solver.placement.starts import ENTITLED, FAIR, FIT, LEFTOVER, TYPE_WEIGHT, Segment, misfit
from solver.placement.strain import ladder
from solver.policy.tree import QuotaLine
from solver.queueing.demand import SubLayer
from solver.quota.dominance import HostUse
from solver.quota.entitlement import Charge, Shares
from solver.quota.options import Option
from solver.quota.users import CapLine, HostLine, beside_least


@dataclass(slots=True)
class Formulation:
    """A program and what its columns mean."""

    classes: tuple[JobClass, ...]
    cells: Cells
    shares: Shares
    sub_layers: tuple[SubLayer, ...]
    builder: ProgramBuilder = field(default_factory=ProgramBuilder)
    ways: dict[Way, int] = field(default_factory=dict)
    growth: dict[GrowthColumn, int] = field(default_factory=dict)
    flows: dict[FlowKind, dict[int, int]] = field(default_factory=dict)
    opened: dict[NewlySharedGpus, int] = field(default_factory=dict)
    entitled: dict[Segment, int] = field(default_factory=dict)
    fair: dict[Segment, int] = field(default_factory=dict)
    all_started: dict[int, int] = field(default_factory=dict)
    demands: tuple[DemandColumn, ...] = ()
    lending: LendingRows = field(init=False)
    split: Split = field(init=False)
    _seen: dict[Against, Cells] = field(default_factory=dict)
    _ladders: dict[TopologyRequest, list[tuple[Level | None, float]]] = field(init=False)
    _by_class: dict[int, list[Way]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        self.lending = LendingRows(self.builder, self.shares)
        self.split = Split(self.builder, self.cells, self._cells_of)
        asked, topology = {known.topology for known in self.classes}, self.cells.capacity.topology
        self._ladders = {each: ladder(topology, each) for each in asked}

    def state(self) -> None:
        """Write all columns, rows and layers."""
        self._columns_for_ways()
        self.demands = tuple(self._demand_columns())
        demand = self._demand_by_kind()
        for kind, asking in demand.items():
            self.flows[kind] = self._columns_for_flow(kind)
            flowing = [(column, -1.0) for column in self.flows[kind].values()]
            self.builder.equal(summed([*asking, *flowing]), 0.0)
        self.split.state(self.flows)
        self._growth_near_its_gangs(demand)
        for view, cells in self.views():
            flows = {kind: columns for kind, columns in self.flows.items() if kind.against >= view}
            CapacityRows(self.builder, view, cells, flows, self.split.columns, self.opened).state()
        self._quota_rows()
        self.lending.state(ChargedColumn(known.job_class.queue, known.charge, known.column) for known in self.demands)
        ways = [WayInLine(way.job_class, way.option, column) for way, column in self.ways.items()]
        self.all_started = LineRows(self.builder, self.classes, ways).state()
        self.entitled = self._columns_inside(self.shares.entitled_room, binds=True)
        self.fair = self._columns_inside(self.shares.fair_room, binds=False)
        self._layers()

    def kinds_of(self, way: Way) -> Iterable[tuple[FlowKind, int]]:
        """What a gang served this way sends into cells, and how many of it: without GPUs nothing."""
        if self.kept_at(way):
            parts = tuple(self._parts(way))
            if parts:
                yield FlowKind(way.level, None, parts, self.classes[way.job_class].against), 1
        else:
            for group in range(len(way.option.gpu_types)):
                kept = self.groups_with(way, group)
                if kept is None:
                    yield from self.kinds_of_group(way, group)
                elif group == self.first_with_gpus(way, kept):
                    yield self.kind_of_groups(way, kept), self.times(way, kept)

    def groups_with(self, way: Way, group: int) -> KeptGroups | None:
        """The groups with which a group flows as one, where the gang does not; None: it flows by itself."""
        known = next((each for each in self.classes[way.job_class].kept_groups if group in each.groups), None)
        return None if known is None or is_wider(known.level, self.cells.level) else known

    def times(self, way: Way, kept: KeptGroups) -> int:
        """How many units of groups a gang starts with; 1 where they are all together."""
        return kept.times([count for _, count in self.classes[way.job_class].groups])

    def kind_of_groups(self, way: Way, kept: KeptGroups) -> FlowKind:
        """What groups that keep to one domain, some of which have GPUs, send into a cell: all of them, or a unit."""
        parts = tuple(self._parts(way, kept))
        return FlowKind(kept.level, way.pool, parts, self.classes[way.job_class].against)

    @staticmethod
    def first_with_gpus(way: Way, kept: KeptGroups) -> int | None:
        """The first of some groups that has GPUs."""
        return next((group for group in kept.groups if way.option.gpu_types[group] is not None), None)

    def kinds_of_group(self, way: Way, group: int) -> Iterable[tuple[FlowKind, int]]:
        """What the tasks of one group send into cells, in the order of their indexes, where the gang does not flow as one.

        Bundles that may be wider than a cell flow task by task, or in those of their bundles that may not.
        """
        known, gpu_type = self.classes[way.job_class], way.option.gpu_types[group]
        if gpu_type is None:
            return
        shape, (_, count) = way.option.shapes[group], known.groups[group]
        bundles = [bundle for bundle in known.bundles[group] if not is_wider(bundle[1], self.cells.level)]
        if not bundles:
            yield FlowKind(None, way.pool, ((bare(shape), gpu_type, 1),), known.against), count
            return
        full, rest = divmod(count, bundles[0][0])
        for size, times in ((bundles[0][0], full), (rest, 1)):
            if size and times:
                within = min((at for each, at in bundles if each >= min(size, count)), key=LEVELS.index)
                level, part = within if size > 1 else None, (bare(shape), gpu_type, size)
                smaller = tuple((each, at) for each, at in bundles if 1 < each < size and is_wider(within, at))
                yield FlowKind(level, way.pool, (part,), known.against, smaller), times

    def kind_of_growth(self, growth: GrowthColumn) -> FlowKind:
        """What each task that a gang grows by sends into cells."""
        way = growth.way
        gpu_type = way.option.gpu_types[growth.group]
        if gpu_type is None:
            raise AssertionError("a group without GPUs has no column to grow by")
        part = (bare(way.option.shapes[growth.group]), gpu_type, 1)
        return FlowKind(self.kept_at(way), way.pool, (part,), self.classes[way.job_class].against)

    def views(self) -> Iterable[tuple[Against, Cells]]:
        """Each set of reservations that holds a job back, with the cells of the room beside what they keep."""
        for view in sorted({NOBODY, *(known.against for known in self.classes)}, key=sorted):
            yield view, self._cells_of(view)

    def _cells_of(self, view: Against) -> Cells:
        if view not in self._seen:
            cells = self.cells
            self._seen[view] = Cells(seen(cells.capacity, view), cells.level, cells.parts) if view else cells
        return self._seen[view]

    def kept_at(self, way: Way) -> Level | None:
        """The level at which whole gangs flow; None: their tasks flow one by one."""
        return None if is_wider(way.level, self.cells.level) else way.level

    def ways_of_class(self, number: int) -> tuple[Way, ...]:
        """The columns of a class, the most preferred first."""
        return tuple(self._by_class.get(number, ()))

    def _parts(self, way: Way, kept: KeptGroups | None = None) -> Iterable[Part]:
        """GPU tasks by shape and type, of some groups. Those without GPUs can be anywhere: placement sees to them."""
        total: dict[tuple[Shape, GpuType], int] = defaultdict(int)
        for group in range(len(way.option.gpu_types)) if kept is None else kept.groups:
            gpu_type, (_, count) = way.option.gpu_types[group], self.classes[way.job_class].groups[group]
            if gpu_type is not None:
                total[bare(way.option.shapes[group]), gpu_type] += kept.size(group, count) if kept else count
        for (shape, gpu_type), count in sorted(total.items(), key=lambda item: (size_of(item[0][0]), item[0][1])):
            yield shape, gpu_type, count

    def _columns_for_ways(self) -> None:
        for number, job_class in enumerate(self.classes):
            for option in job_class.options:
                most = self._most(job_class, option)
                for way in self._ways(number, job_class, option) if most else ():
                    self.ways[way] = self.builder.column(most)
                    self._by_class[number].append(way)
                    self._columns_for_growth(way, most)
            self.builder.at_most({self.ways[way]: 1.0 for way in self._by_class[number]}, len(job_class.members))

    def _columns_for_growth(self, way: Way, most: int) -> None:
        for group, extra in enumerate(self.classes[way.job_class].extra):
            steps = extra // self.step_of(way, group)
            if steps and way.option.gpu_types[group] is not None:
                column = self.growth[GrowthColumn(way, group)] = self.builder.column(steps * most)
                self.builder.at_most({column: 1.0, self.ways[way]: -float(steps)}, 0.0)
        for group, first in self.tied_to_others(way).items():
            tied = {self.growth[GrowthColumn(way, group)]: 1.0, self.growth[GrowthColumn(way, first)]: -1.0}
            self.builder.equal(tied, 0.0)

    def tied_to_others(self, way: Way) -> Mapping[int, int]:
        """Groups whose tasks come in units with those of an earlier group that has a column, each with that one."""
        found = dict[int, int]()
        for unit in self.classes[way.job_class].members[0].job.spec.units if self.growth else ():
            first, *others = [group for group in unit.groups if GrowthColumn(way, group) in self.growth] or [-1]
            found |= dict.fromkeys(others, first)
        return found

    def step_of(self, way: Way, group: int) -> int:
        """By how many tasks at once a group of a class grows: what one of a growth column brings."""
        return self.classes[way.job_class].members[0].job.spec.task_groups[group].replica_step

    def _growth_near_its_gangs(self, demand: Mapping[FlowKind, list[tuple[int, float]]]) -> None:
        """Where whole gangs flow into a cell, what they grow by flows into the same; beside gangs that are as one task of it."""
        growing = set(self.growth.values())
        extra: dict[FlowKind, dict[FlowKind, int]] = defaultdict(dict)
        for growth in self.growth:
            if self.kept_at(growth.way):
                ((gangs, _),) = self.kinds_of(growth.way)
                most = self.classes[growth.way.job_class].extra[growth.group]
                near = extra[self.kind_of_growth(growth)]
                near[gangs] = near.get(gangs, 0) + most
        for kind, near in extra.items():
            alike = [(column, -count) for column, count in demand[kind] if column not in growing]
            hosts_of = [(self.flows[gangs], -float(most)) for gangs, most in near.items()]
            for domain, column in self.flows[kind].items():
                hosts = [(columns[domain], most) for columns, most in hosts_of if domain in columns]
                self.builder.at_most(summed([(column, 1.0), *hosts, *alike]), 0.0)

    def _demand_columns(self) -> Iterable[DemandColumn]:
        for way, column in self.ways.items():
            known, worth = self.classes[way.job_class], way.option.worth
            unfit, inside_only = misfit(worth, way.option, way.strain), known.is_inside_only(way.option)
            heavy = way.option.excess_weight([count for _, count in known.groups])
            beside = beside_least(known.members[0].job.spec)
            yield DemandColumn(
                column, known, known.sub_layer, way.option.charge, worth, unfit, heavy, inside_only, beside
            )
        for growth, column in self.growth.items():
            way, known = growth.way, self.classes[growth.way.job_class]
            ((shape, gpu_type, _),) = self.kind_of_growth(growth).parts
            step = self.step_of(way, growth.group)
            gpus, charge = step * shape.cost / MILLI_PER_GPU, {gpu_type: step * shape.cost}
            unfit, inside_only = misfit(gpus, way.option, way.strain), known.is_inside_only(way.option)
            heavy, layer = gpus * way.option.heavier[growth.group], known.sub_layer.of_growth
            task = way.option.shapes[growth.group]
            beside = HostUse(step * int(task.cpu), step * int(task.memory))
            yield DemandColumn(column, known, layer, charge, gpus, unfit, heavy, inside_only, beside)

    def _most(self, job_class: JobClass, option: Option) -> int:
        """Gangs that max and caps on the path allow by themselves: columns that can't be used are fixed, or the bound is weak."""
        beside = beside_least(job_class.members[0].job.spec)
        allowed = (room // amount for _, amount, room in self._caps(job_class, option.charge, beside))
        return min((len(job_class.members), *allowed))

    def _caps(
        self, job_class: JobClass, charge: Charge, beside: HostUse
    ) -> Iterable[tuple[QuotaLine | CapLine, int, int]]:
        """Each max and cap that a charge counts against, of queues and of its user there: what it takes, and what is left."""
        for gpu_type, milli in charge.items():
            for queue in self.shares.tree.path(job_class.queue):
                line = QuotaLine(queue, gpu_type)
                room = self.shares.left_under_max(line)
                if room is not None:
                    yield line, milli, room
        for cap_line, amount in self.shares.users.charges(job_class.members[0].job, charge, beside):
            yield cap_line, amount, self.shares.users.room(cap_line)

    def _ways(self, number: int, job_class: JobClass, option: Option) -> Iterable[Way]:
        for level, strain in self._ladders[job_class.topology]:
            if level == "pool" and is_wider(level, self.cells.level):
                pools = range(len(self.cells.capacity.topology["pool"].names))
                yield from (Way(number, option, level, pool, strain) for pool in pools)
            else:
                yield Way(number, option, level, None, strain)

    def _demand_by_kind(self) -> dict[FlowKind, list[tuple[int, float]]]:
        demand: dict[FlowKind, list[tuple[int, float]]] = defaultdict(list)
        for way, column in self.ways.items():
            for kind, count in self.kinds_of(way):
                demand[kind].append((column, float(count)))
        for growth, column in self.growth.items():
            step = self.step_of(growth.way, growth.group)
            demand[self.kind_of_growth(growth)].append((column, float(step)))
        return dict(demand)

    def _columns_for_flow(self, kind: FlowKind) -> dict[int, int]:
        gpu_types = {gpu_type for _, gpu_type, _ in kind.parts}
        domains = sorted({cell.domain for gpu_type in gpu_types for cell in self.cells.all_of_type(gpu_type)})
        if kind.pool is not None:
            domains = [domain for domain in domains if self.cells.pool_of(domain) == kind.pool]
        most = {domain: min(self._most_in(kind, part, domain) for part in kind.parts) for domain in domains}
        return {domain: self.builder.column(count) for domain, count in most.items() if count}

    def _most_in(self, kind: FlowKind, part: Part, domain: int) -> int:
        shape, gpu_type, count = part
        cell, cells = CapacityCell(domain, gpu_type), self._cells_of(kind.against)
        if kind.level is None or (kind.level == cells.level and not kind.inner):
            return cells.slots(shape, cell) // count
        return cells.bundles(shape, count, kind.level, cell, kind.inner)

    def _quota_rows(self) -> None:
        terms: dict[QuotaLine | CapLine, list[tuple[int, float]]] = defaultdict(list)
        room_of: dict[QuotaLine | CapLine, int] = {}
        for demand in self.demands:
            for line, amount, room in self._caps(demand.job_class, demand.charge, demand.beside):
                terms[line].append((demand.column, amount / _unit(line)))
                room_of[line] = room
        for line, room in room_of.items():
            self.builder.at_most(summed(terms[line]), room / _unit(line))

    def _columns_inside(self, room_of: Callable[[QuotaLine], int], *, binds: bool) -> dict[Segment, int]:
        """A column per segment for its GPUs inside nested lines, tied to what the segment gets and to every line on its path.

        `binds`: what may not borrow gets nothing outside these lines.
        """
        columns: dict[Segment, int] = {}
        inside: dict[QuotaLine, list[tuple[int, float]]] = defaultdict(list)
        for segment, asking in sorted(by_segment(self.demands).items()):
            lines = self.shares.tree.lines(segment.queue, segment.gpu_type)
            left = min(room_of(line) for line in lines)
            must = binds and not segment.may_borrow
            if not left and not must:
                continue
            column = columns[segment] = self.builder.column(left / MILLI_PER_GPU, integer=False)
            tied = summed([(column, 1.0), *((way, -gpus) for way, gpus in asking)])
            if must:
                self.builder.equal(tied, 0.0)
            else:
                self.builder.at_most(tied, 0.0)
            for line in lines:
                inside[line].append((column, 1.0))
        for line, terms in inside.items():
            self.builder.at_most(summed(terms), room_of(line) / MILLI_PER_GPU)
        return columns

    def _layers(self) -> None:
        weight = {(demand.layer, demand.job_class.band): demand.job_class.weight for demand in self.demands}
        for kind, columns, exact in ((ENTITLED, self.entitled, True), (FAIR, self.fair, False)):
            for layer in self.sub_layers:
                inside = {segment: column for segment, column in columns.items() if segment.sub_layer == layer}
                terms = {column: weight[segment.sub_layer, segment.band] for segment, column in inside.items()}
                self.builder.maximise(f"{kind}{layer}", terms, exact=exact)
        for layer in self.sub_layers:
            mine = {
                known.column: known.job_class.weight * known.worth for known in self.demands if known.layer == layer
            }
            self.builder.maximise(f"{LEFTOVER}{layer}", mine)
        self.builder.maximise(FIT, {demand.column: -demand.misfit for demand in self.demands})
        self.builder.maximise(
            TYPE_WEIGHT, {known.column: -known.excess_weight for known in self.demands if known.excess_weight}
        )


def _unit(line: QuotaLine | CapLine) -> int:
    """In which a line is counted: GPUs, cores, or GiB."""
    return 2**30 if isinstance(line, HostLine) and line.resource == "memory" else MILLI_PER_GPU
