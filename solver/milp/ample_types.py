"""GPU types on whose nodes CPU, memory and all else suffice for whatever GPUs are had there.

Tasks that differ in these alone are one kind on such nodes, and rows of these follow from the rows of GPUs. So a
program has far fewer columns where each GPU's part of its node is as much as any job asks for with a GPU.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from solver.capacity.free_capacity import FreeCapacity
from solver.capacity.reserved_view import NOBODY, seen
from solver.milp.preemption_flows import NodeReleases
from solver.milp.preemption_program import PreemptionProgram
from solver.model.cluster import GpuType
from solver.model.shape import Shape

Ways = Sequence[tuple[Shape, GpuType | None]]


@dataclass(frozen=True, slots=True)
class AmpleTypes:
    """Looks for them, among those that the jobs of a program ask for. `released` and `moved`: by node, what it may get back."""

    program: PreemptionProgram
    room: FreeCapacity
    released: Mapping[int, Sequence[NodeReleases]]
    moved: Mapping[int, Sequence[NodeReleases]]

    def found(self) -> frozenset[GpuType]:
        """None where tasks without GPUs are served or move: they may take what any node has beside its GPUs."""
        asked = defaultdict[GpuType, set[Shape]](set)
        for shape, gpu_type in self._asked():
            if gpu_type is None:
                return frozenset()
            asked[gpu_type].add(shape)
        views = {NOBODY, frozenset(self.room.reserved)}
        views.update(served.job_class.first.against for served in self.program.served.values())
        rooms, alone = [seen(self.room, against) for against in views], self._moving_alone()
        return frozenset(kind for kind, shapes in asked.items() if self._is_ample(kind, shapes, rooms, alone))

    def _asked(self) -> Iterator[tuple[Shape, GpuType | None]]:
        for served in self.program.served.values():
            yield from zip(served.option.shapes, served.option.gpu_types, strict=True)
        for place in self.program.moving:
            option = self.program.movers[place].option
            yield from zip(option.shapes, option.gpu_types, strict=True)

    def _moving_alone(self) -> frozenset[int]:
        """The columns of jobs that may move and not leave. Of a job that may do both a node gets the same back either way."""
        of_gang, leaving = self.program.attempts.evictable.allocations.of_gang, self.program.leaving.keys()
        names = {column: self.program.movers[place].name for place, column in self.program.moving.items()}
        return frozenset(column for column, name in names.items() if not leaving >= {*of_gang.get(name, (-1,))})

    def _is_ample(
        self, gpu_type: GpuType, shapes: Collection[Shape], rooms: Sequence[FreeCapacity], alone: Collection[int]
    ) -> bool:
        """Whether on each node of the type as much is free, or leaves, beside each GPU as any task takes beside one of its own."""
        if not all(shape.gpus for shape in shapes):
            return False
        needs = {
            name: max(-(-shape.beside.get(name, 0) // shape.gpus) for shape in shapes)
            for name in {name for shape in shapes for name in shape.beside}
        }
        for node in np.flatnonzero(self.room.open_nodes & self.room.of_type(gpu_type)).tolist():
            if node in self.room.shared or any(gpu.instances is not None for gpu in self.room.nodes[node].gpus):
                return False
            back = (*self.released[node], *(release for release in self.moved[node] if release.who in alone))
            # What leaves with less beside it than that lacks has to be there already.
            for name, need in needs.items():
                lacking = sum(max(0, need * release.gpus - release.beside.get(name, 0)) for release in back)
                for room in rooms:
                    gpus = max(0, int(room.free_gpus[node]))
                    if need * gpus + lacking > int(room.free_beside[name][node]):
                        return False
        return True
