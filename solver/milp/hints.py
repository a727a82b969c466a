"""Where the program wants gangs to be: nodes to try first when what it counts is made concrete."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from solver.milp.cell_parts import Portion
from solver.milp.cells import CapacityCell
from solver.milp.formulation import Formulation
from solver.milp.ways import FlowKind, GrowthColumn, Way
from solver.model.arrays import Floats, Mask


@dataclass(slots=True)
class Hints:
    """Hands the domains that kinds flow into out to one gang after the other, and in split cells the parts of these."""

    formulation: Formulation
    values: Floats
    _domains: dict[FlowKind, list[int]] = field(default_factory=dict)
    _parts: dict[tuple[FlowKind, int, CapacityCell], list[CapacityCell]] = field(default_factory=dict)

    def of(self, way: Way) -> Mask | None:
        """The nodes for the next gang that is served this way; None: any."""
        cells = self.formulation.cells
        if not cells.parts and way.pool is not None:
            mask: Mask = cells.capacity.topology["pool"].of_node == way.pool
            return mask
        if not cells.parts and not self.formulation.kept_at(way):
            return None
        masks = list(self._flowing(way))
        return np.logical_or.reduce(masks) if masks else None

    def _flowing(self, way: Way) -> Iterator[Mask]:
        """Where all that it sends goes; where the gangs that are served so grow, all of them may."""
        for kind, times in self.formulation.kinds_of(way):
            domains = self._of_kind(kind)
            for domain in domains[:times]:
                yield from self._in(kind, domain) if self.formulation.cells.parts else [self._nodes_of(domain)]
            del domains[:times]
        for number in range(len(way.option.gpu_types)) if self.formulation.cells.parts else ():
            if GrowthColumn(way, number) in self.formulation.growth:
                kind = self.formulation.kind_of_growth(GrowthColumn(way, number))
                for domain in dict.fromkeys(self._of_kind(kind)):
                    yield from self._in(kind, domain)

    def _of_kind(self, kind: FlowKind) -> list[int]:
        """The domains that it flows into, each as often as it does, less those that were handed out."""
        if kind not in self._domains:
            columns = self.formulation.flows[kind].items()
            self._domains[kind] = [domain for domain, column in columns for _ in range(round(self.values[column]))]
        return self._domains[kind]

    def _nodes_of(self, domain: int) -> Mask:
        return self.formulation.cells.nodes_of(domain)

    def _in(self, kind: FlowKind, domain: int) -> Iterator[Mask]:
        """The nodes of a domain for one of a kind."""
        cells = self.formulation.cells
        for number, (_, gpu_type, count) in enumerate(kind.parts):
            whole = CapacityCell(domain, gpu_type)
            if whole not in cells.parts:
                yield cells.mask_of(whole)
                continue
            parts = self._parts_of(kind, number, whole)
            yield from (cells.mask_of(cell) for cell in dict.fromkeys(parts[:count]))
            del parts[:count]

    def _parts_of(self, kind: FlowKind, number: int, whole: CapacityCell) -> list[CapacityCell]:
        """The parts of a cell that its tasks go to, each as often as one does, less those that were handed out."""
        key = (kind, number, whole)
        if key not in self._parts:
            parts = (replace(whole, part=part) for part in range(len(self.formulation.cells.parts[whole])))
            self._parts[key] = [cell for cell in parts for _ in range(self._tasks_in(Portion(kind, number, cell)))]
        return self._parts[key]

    def _tasks_in(self, portion: Portion) -> int:
        column = self.formulation.split.columns.get(portion)
        return 0 if column is None else round(self.values[column])
