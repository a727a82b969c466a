"""Which running work is borrowed: whether each job lies inside, straddles or lies beyond the guarantees on its path.

In each queue and type, at each level, running jobs stand in line (not preemptible first, base priority, start, name): the
prefix that fits in the guarantee is inside, the job that crosses the line straddles it, the rest is borrowed (DESIGN
section 5). Lines of a level are told apart by number, and judged all at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from solver.model.arrays import Ints, Mask, begins, running_sums
from solver.policy.tree import QuotaLine
from solver.quota.allocation_table import AllocationTable
from solver.quota.entitlement import Shares
from solver.quota.held_use import NEVER
from solver.quota.victims import BORROWED, INSIDE, STRADDLES

NOWHERE = -1
"""It stands in no such line: it is charged nothing of the type, or its path ends before."""


def borrowing_of(allocations: AllocationTable, shares: Shares) -> Ints:
    """By holder, GPU type and depth (roots: 0): where it stands in the line of the queue on its path, as a place in STANDINGS.

    From the leaves up: who is inside the guarantee of the queue below comes first, so that what a queue below borrows is borrowed
    above it too, and does not use up what its siblings are guaranteed.
    """
    queue_at, queues = allocations.paths(shares.tree)
    in_line, preemptible = _in_line(allocations), allocations.columns.preemptible[allocations.gang]
    found = np.full((len(in_line), len(allocations.gpu_types), queue_at.shape[1]), NOWHERE, dtype=np.int64)
    for column, gpu_type in enumerate(allocations.gpu_types):
        guaranteed = np.array(
            [shares.guaranteed.get(QuotaLine(queue, gpu_type), 0) for queue in queues], dtype=np.int64
        )
        charged = in_line[allocations.has[in_line, column]]
        below = np.full(len(in_line), INSIDE)
        for depth in reversed(range(queue_at.shape[1])):
            there = charged[queue_at[charged, depth] != NOWHERE]
            order = there[np.lexsort((-below[there], queue_at[there, depth]))]
            lines = queue_at[order, depth]
            below[order] = _stand(lines, allocations.charge[order, column], preemptible[order], guaranteed[lines])
            found[order, column, depth] = below[order]
    return found


def _in_line(allocations: AllocationTable) -> Ints:
    """The holders' numbers, as they stand in line."""
    gangs = allocations.columns
    started = np.where(gangs.started == NEVER, 0, gangs.started)
    place = np.empty(len(started), dtype=np.int64)
    place[np.lexsort((allocations.by_owner, started, -gangs.value, gangs.preemptible))] = np.arange(len(place))
    # No two gangs have the same name, so that no gang's parts stand among those of another.
    order: Ints = np.lexsort((allocations.by_name, place[allocations.gang]))
    return order


def _stand(lines: Ints, milli: Ints, preemptible: Mask, guaranteed: Ints) -> Ints:
    """Where each stands who is charged so much, in the order of their lines; `guaranteed`: of its line."""
    first = begins(lines)
    held = running_sums(first, milli)
    before = held - milli
    places = np.where(held <= guaranteed, INSIDE, np.where(preemptible & (before < guaranteed), STRADDLES, BORROWED))
    # Who crosses a line and does not straddle it takes nothing of it: behind such, one looks at the next by itself.
    edges = np.append(np.flatnonzero(first), len(lines))
    stays_out = (before <= guaranteed) & (held > guaranteed) & ~preemptible
    for line in np.unique(np.searchsorted(edges, np.flatnonzero(stays_out), side="right") - 1).tolist():
        own = slice(edges[line], edges[line + 1])
        in_line = zip(milli[own].tolist(), preemptible[own].tolist(), strict=True)
        places[own] = list(_one_by_one(in_line, int(guaranteed[own.start])))
    return places


def _one_by_one(in_line: Iterable[tuple[int, bool]], guaranteed: int) -> Iterator[int]:
    held = 0
    for milli, preemptible in in_line:
        if held + milli <= guaranteed:
            yield INSIDE
        elif preemptible:
            yield STRADDLES if held < guaranteed else BORROWED
        else:
            # What may not be preempted but may borrow is borrowed as a whole where it crosses the line.
            yield BORROWED
            continue
        held += milli
