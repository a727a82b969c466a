"""The rows that keep what flows into cells within what the cells have: slots, CPU and memory, and bundles in closer domains."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from solver.program.builder import ProgramBuilder, summed
from solver.program.cells import Cell, Cells, cost_in_slots, reference_shapes
from solver.program.classes import Group
from solver.program.ways import Kind
from solver.world.cluster import GpuType, is_wider
from solver.world.workload import Shape


@dataclass(frozen=True, slots=True)
class CapacityRows:
    """Rows over `flows`: for each kind, its column per domain."""

    builder: ProgramBuilder
    cells: Cells
    flows: Mapping[Kind, Mapping[int, int]]

    def state(self) -> None:
        """Write them all."""
        self._slot_rows()
        self._bundle_rows()

    def _slot_rows(self) -> None:
        for cell, flows in self._flows_by_cell().items():
            for reference in reference_shapes(shape for _, parts in flows for shape, _ in parts):
                terms = summed(
                    (column, float(sum(cost_in_slots(shape, reference) * count for shape, count in parts)))
                    for column, parts in flows
                )
                self.builder.at_most(terms, self.cells.slots(reference, cell))
            self._host_rows(cell, flows)

    def _host_rows(self, cell: Cell, flows: Sequence[tuple[int, tuple[Group, ...]]]) -> None:
        """CPU and memory of a cell as a whole; in thousandths of what is free, so that coefficients stay near one."""
        for free, need in zip(self.cells.free(cell), ("cpu", "memory"), strict=True):
            unit = max(1.0, free / 1000)
            terms = summed(
                (column, sum(int(getattr(shape, need)) * count for shape, count in parts) / unit)
                for column, parts in flows
            )
            self.builder.at_most(terms, free / unit)

    def _flows_by_cell(self) -> dict[Cell, list[tuple[int, tuple[Group, ...]]]]:
        by_cell: dict[Cell, list[tuple[int, tuple[Group, ...]]]] = defaultdict(list)
        for kind, columns in self.flows.items():
            for gpu_type in sorted({gpu_type for _, gpu_type, _ in kind.parts}):
                mine = tuple((shape, count) for shape, other, count in kind.parts if other == gpu_type)
                for domain, column in columns.items():
                    by_cell[Cell(domain, gpu_type)].append((column, mine))
        return by_cell

    def _bundle_rows(self) -> None:
        """Gangs kept together closer than a cell: each takes a bundle of slots out of one such domain."""
        together = {
            (kind.level, part): None
            for kind in self.flows
            if kind.level is not None and is_wider(self.cells.level, kind.level)
            for part in kind.parts
        }
        for level, (shape, gpu_type, count) in together:
            per_domain: dict[int, list[tuple[int, float]]] = defaultdict(list)
            for kind, columns in self.flows.items():
                if kind.level is not None and not is_wider(kind.level, level):
                    bundles = self._slots_taken(kind, shape, gpu_type) // count
                    for domain, column in columns.items():
                        per_domain[domain].append((column, float(bundles)))
            for domain, terms in per_domain.items():
                limit = self.cells.bundles(shape, count, level, Cell(domain, gpu_type))
                self.builder.at_most(summed(terms), limit)

    def _slots_taken(self, kind: Kind, reference: Shape, gpu_type: GpuType) -> int:
        return sum(cost_in_slots(shape, reference) * count for shape, other, count in kind.parts if other == gpu_type)
