"""Cells split by the sets of nodes that tasks are limited to: how what flows into a cell divides over its parts.

The nodes of a cell that are in the same sets are one part of it. A cell with all nodes in the same sets is not split, so
that where no task is limited the program is the same. In a part rows are as exact as they are in a cell.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from solver.capacity.reserved_view import Against
from solver.milp.builder import ProgramBuilder
from solver.milp.cells import CapacityCell, Cells
from solver.milp.ways import FlowKind
from solver.model.arrays import Mask
from solver.model.shape import nodes_of

PARTS_MAX = 16
"""Parts of one cell, the largest first: all further nodes are one part, with rows that are valid and not exact."""


class Portion(NamedTuple):
    """Tasks of the part of a kind with this number, in a part of a cell: the column `u`."""

    kind: FlowKind
    number: int
    cell: CapacityCell


@dataclass(frozen=True, slots=True)
class Split:
    """The columns of a program. `cells`: those of the whole room; `cells_of`: those that a kind's view shows."""

    builder: ProgramBuilder
    cells: Cells
    cells_of: Callable[[Against], Cells]
    columns: dict[Portion, int] = field(default_factory=dict)

    def state(self, flows: Mapping[FlowKind, Mapping[int, int]]) -> None:
        """Split the cells into which limited tasks flow, and tie each part to what flows in: its tasks are somewhere there."""
        for cell, names in self._named(flows).items():
            parts = _parts(self.cells, cell, sorted(names))
            if len(parts) > 1:
                self.cells.parts[cell] = parts
        for kind, columns in flows.items() if self.cells.parts else ():
            for domain, column in columns.items():
                self._divide(kind, domain, column)

    def _named(self, flows: Mapping[FlowKind, Mapping[int, int]]) -> dict[CapacityCell, set[str]]:
        """The sets that are named by what flows into each cell, where it names any."""
        named: dict[CapacityCell, set[str]] = defaultdict(set)
        for kind, columns in flows.items():
            for shape, gpu_type, _ in kind.parts:
                if nodes_of(shape):
                    for domain in columns:
                        named[CapacityCell(domain, gpu_type)].add(nodes_of(shape))
        return named

    def _divide(self, kind: FlowKind, domain: int, column: int) -> None:
        for number, (shape, gpu_type, count) in enumerate(kind.parts):
            whole, terms = CapacityCell(domain, gpu_type), {column: -float(count)}
            for part in range(len(self.cells.parts.get(whole, ()))):
                cell = replace(whole, part=part)
                most = self.cells_of(kind.against).slots(shape, cell)
                if most:
                    portion = self.columns[Portion(kind, number, cell)] = self.builder.column(most)
                    terms[portion] = 1.0
            if whole in self.cells.parts:
                self.builder.equal(terms, 0.0)


def _parts(cells: Cells, cell: CapacityCell, names: list[str]) -> tuple[Mask, ...]:
    """The open nodes of a cell by the sets that they are in, the largest part first."""
    nodes = np.flatnonzero(cells.mask_of(cell) & cells.capacity.open_nodes)
    _, part_of, sizes = np.unique(
        np.stack([cells.capacity.sets[name][nodes] for name in names]), axis=1, return_inverse=True, return_counts=True
    )
    rank = np.argsort(np.argsort(-sizes, kind="stable"), kind="stable")
    numbers = np.minimum(rank[part_of.reshape(-1)], PARTS_MAX - 1)
    masks = []
    for part in range(min(len(sizes), PARTS_MAX)):
        mask = np.zeros(len(cells.capacity.nodes), dtype=bool)
        mask[nodes[numbers == part]] = True
        masks.append(mask)
    return tuple(masks)
