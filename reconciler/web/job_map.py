"""Where a job's tasks are, as a small picture: the racks that it is in, node by node, with what it holds of each."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from reconciler.web.natural_order import natural
from solver.model.cluster import Node, NodeName
from solver.model.quantities import MILLI_PER_GPU
from solver.model.workload import TaskPlacement
from solver.plan.reason import count

RACKS_MAX: Final = 24
CELL: Final = 14
"""Side of a node, in pixels of the picture."""
STEP: Final = CELL + 3
LABEL: Final = 150
"""What the name of a rack takes beside its nodes."""


class NodeCell(NamedTuple):
    """A node in the picture. `part`: the height of what the job holds of it; `told`: the same in words."""

    x: int
    y: int
    part: float
    told: str


class RackRow(NamedTuple):
    """A rack, and where its name stands."""

    name: str
    y: int


class JobMap(NamedTuple):
    """The picture, and how many racks it leaves out."""

    width: int
    height: int
    racks: tuple[RackRow, ...]
    cells: tuple[NodeCell, ...]
    left_out: int


def job_map(tasks: Collection[TaskPlacement], nodes: Sequence[Node], across: int = 32) -> JobMap | None:
    """Racks in natural order, with at most `across` nodes on a line. None: none of the tasks' nodes is known."""
    held = Counter[NodeName]()
    for task in tasks:
        held[task.node] += int(task.gpus)
    named = {node.name: _rack_of(node) for node in nodes if node.name in held}
    within = defaultdict[str, list[Node]](list)
    touched = set(named.values())
    for node in nodes:
        if _rack_of(node) in touched:
            within[_rack_of(node)].append(node)
    if not within:
        return None
    racks, cells, y = list[RackRow](), list[NodeCell](), 0
    for name in sorted(within, key=natural)[:RACKS_MAX]:
        racks.append(RackRow(name, y))
        for place, node in enumerate(sorted(within[name], key=lambda node: natural(node.name))):
            line, column = divmod(place, across)
            cells.append(_cell(node, held[node.name], LABEL + column * STEP, y + line * STEP))
        y += STEP * (1 + (len(within[name]) - 1) // across) + 4
    widest = min(across, max(len(known) for known in within.values()))
    return JobMap(LABEL + widest * STEP, y, tuple(racks), tuple(cells), max(0, len(within) - RACKS_MAX))


def _cell(node: Node, held: int, x: int, y: int) -> NodeCell:
    whole = max(1, len(node.gpus)) * int(MILLI_PER_GPU)
    part = min(1.0, held / whole)
    gpus = f"{held / int(MILLI_PER_GPU):g} of {count(len(node.gpus), 'GPU')}" if held else "nothing"
    return NodeCell(x, y, round(part * CELL, 1), f"{node.name}: {gpus}")


def _rack_of(node: Node) -> str:
    return " / ".join(part for part in (node.block, node.rack) if part) or "no rack"
