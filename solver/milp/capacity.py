"""The rows that keep what flows into cells within what they have: slots, what is beside GPUs, and bundles in closer domains."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from solver.capacity.reserved_view import Against
from solver.milp.builder import ProgramBuilder, summed
from solver.milp.cell_parts import Portion
from solver.milp.cells import CapacityCell, Cells, bare, cost_in_slots, gpus_alone, reference_shapes
from solver.milp.classes import Group
from solver.milp.ways import FlowKind, Part
from solver.model.amounts import CPU, MEMORY, NONE
from solver.model.cluster import GpuType, Level, is_wider
from solver.model.quantities import MILLI_PER_GPU
from solver.model.shape import Circle, MigShape, Shape, SharedShape, kept_to, nodes_of
from solver.model.workload import Bundled

Flows = list[tuple[int, tuple[Group, ...]]]
"""Columns that flow into one cell, with the tasks that one of each brings."""

ONE_GPU = Shape(1)


Circles = tuple[Circle, ...]
"""Of a share, in one cell: none or one."""


class NewlySharedGpus(NamedTuple):
    """Whole GPUs of a cell that are divided for one trust domain, by jobs that these reservations hold back."""

    view: Against
    cell: CapacityCell
    circles: Circles


@dataclass(frozen=True, slots=True)
class CapacityRows:
    """Rows over `flows`: for each kind, its column per domain, and over `portions` of these in parts of cells.

    `cells`: the room that all of them see, `view`.
    """

    builder: ProgramBuilder
    view: Against
    cells: Cells
    flows: Mapping[FlowKind, Mapping[int, int]]
    portions: Mapping[Portion, int] = field(default_factory=dict)
    opened: dict[NewlySharedGpus, int] = field(default_factory=dict)

    def state(self) -> None:
        """Write them all."""
        self._slot_rows()
        self._bundle_rows()

    def _slot_rows(self) -> None:
        for cell, flows in self._flows_by_cell().items():
            opened = self._opened_columns(cell, flows)
            shapes = [shape for _, parts in flows for shape, _ in parts]
            for reference in reference_shapes([*shapes, ONE_GPU] if opened else shapes):
                if reference.resources and not self._is_scarce(reference, cell):
                    continue
                taken = [(column, float(_cost(parts, reference))) for column, parts in flows]
                if not isinstance(reference, SharedShape):
                    taken += [(column, float(cost_in_slots(ONE_GPU, reference))) for column in opened.values()]
                self.builder.at_most(summed(taken), self.cells.slots(reference, cell))
            self._host_rows(cell, flows)
            self._partition_row(cell, flows)

    def _opened_columns(self, cell: CapacityCell, flows: Flows) -> dict[Circles, int]:
        """A column for each trust domain: whole GPUs that are divided for it. To all others each is a task of one GPU."""
        columns: dict[Circles, int] = {}
        shares = {gpus_alone(bare(shape)): None for _, parts in flows for shape, _ in parts}
        for reference in shares:
            if not isinstance(reference, SharedShape):
                continue
            if reference.circles not in columns:
                columns[reference.circles] = self.builder.column(self.cells.slots(ONE_GPU, cell))
                self.opened[NewlySharedGpus(self.view, cell, reference.circles)] = columns[reference.circles]
            taken = [
                (column, float(_cost([part for part in parts if isinstance(part[0], SharedShape)], reference)))
                for column, parts in flows
            ]
            divided = (columns[reference.circles], -float(MILLI_PER_GPU // reference.milli))
            self.builder.at_most(summed([*taken, divided]), self.cells.divided_slots(reference, cell))
        return columns

    def _host_rows(self, cell: CapacityCell, flows: Flows) -> None:
        """What a cell as a whole has beside GPUs; in thousandths of what is free, so that coefficients stay near one."""
        resources = {name for _, parts in flows for shape, _ in parts for name in shape.resources}
        for name in (CPU, MEMORY, *sorted(resources)):
            free = self.cells.free(cell, name)
            unit = max(1.0, free / 1000)
            terms = summed(
                (column, sum(shape.beside.get(name, 0) * count for shape, count in parts) / unit)
                for column, parts in flows
            )
            self.builder.at_most(terms, free / unit)

    def _is_scarce(self, reference: Shape, cell: CapacityCell) -> bool:
        """Whether a cell has room for fewer tasks of a shape for what they take beside GPUs, CPU and memory."""
        without = msgspec.structs.replace(reference, resources=NONE)
        return self.cells.slots(reference, cell) < self.cells.slots(without, cell)

    def _partition_row(self, cell: CapacityCell, flows: Flows) -> None:
        """Whole GPUs and instances of all profiles of a cell together, by the memory slices they take, in GPUs."""
        if any(isinstance(shape, MigShape) for _, parts in flows for shape, _ in parts):
            terms = summed(
                (column, sum(int(shape.cost) * count for shape, count in parts) / MILLI_PER_GPU)
                for column, parts in flows
            )
            self.builder.at_most(terms, self.cells.milli_with_instances(cell) / MILLI_PER_GPU)

    def _flows_by_cell(self) -> dict[CapacityCell, Flows]:
        by_cell: dict[CapacityCell, Flows] = defaultdict(list)
        for kind, columns in self.flows.items():
            for gpu_type in sorted({gpu_type for _, gpu_type, _ in kind.parts}):
                for domain, column in columns.items():
                    cell = CapacityCell(domain, gpu_type)
                    if cell not in self.cells.parts:
                        mine = tuple(
                            (self.cells.local(shape, cell), count)
                            for shape, other, count in kind.parts
                            if other == gpu_type
                        )
                        by_cell[cell].append((column, mine))
        for (kind, number, cell), column in self.portions.items():
            if kind in self.flows:
                by_cell[cell].append((column, ((self.cells.local(kind.parts[number][0], cell), 1),)))
        return by_cell

    def _bundle_rows(self) -> None:
        """Gangs kept together closer than a cell: each takes a bundle of slots out of one such domain."""
        for (level, (shape, gpu_type, count), inner), domains in self._kept_together().items():
            per_domain: dict[int, list[tuple[int, float]]] = defaultdict(list)
            for kind, columns in self.flows.items():
                # Of bundles of bundles only what is cut into the same ones takes any.
                if kind.level is not None and not is_wider(kind.level, level) and inner in ((), kind.inner):
                    bundles = self._slots_taken(kind, shape, gpu_type) // count
                    for domain, column in columns.items():
                        if domain in domains:
                            per_domain[domain].append((column, float(bundles)))
            for domain, terms in per_domain.items():
                limit = self.cells.bundles(shape, count, level, CapacityCell(domain, gpu_type), inner)
                self.builder.at_most(summed(terms), limit)

    def _kept_together(self) -> dict[tuple[Level, Part, Bundled], set[int]]:
        """What is kept together closer than a cell, or in bundles that are, and the domains it flows into.

        Where it can't be, it is not known which tasks take its slots: a pool that is not shared has none of a share's to lose.
        """
        together: dict[tuple[Level, Part, Bundled], set[int]] = defaultdict(set)
        for kind, columns in self.flows.items():
            if kind.level is not None and is_wider(self.cells.level, kind.level):
                for part in kind.parts:
                    together[kind.level, part, ()] |= columns.keys()
            if kind.level is not None and kind.inner:
                together[kind.level, kind.parts[0], kind.inner] |= columns.keys()
        for (level, (shape, gpu_type, count), inner), domains in list(together.items()):
            if nodes_of(shape):
                together[level, (kept_to(shape, ""), gpu_type, count), inner] |= domains
            if shape.resources:
                bare_of_others = msgspec.structs.replace(shape, resources=NONE)
                together[level, (bare_of_others, gpu_type, count), inner] |= domains
        return together

    def _slots_taken(self, kind: FlowKind, reference: Shape, gpu_type: GpuType) -> int:
        return sum(cost_in_slots(shape, reference) * count for shape, other, count in kind.parts if other == gpu_type)


def _cost(parts: Iterable[Group], reference: Shape) -> int:
    return sum(cost_in_slots(shape, reference) * count for shape, count in parts)
