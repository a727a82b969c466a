"""What is free for a job that reservations hold back: the free capacity without what is kept for others."""

from __future__ import annotations

from collections.abc import Collection

from solver.capacity.free_capacity import FreeCapacity
from solver.model.workload import JobName

Against = frozenset[JobName]
"""The holders whose reservations hold a job back. It does not see what is kept for them."""

NOBODY: Against = frozenset()


def seen(room: FreeCapacity, against: Collection[JobName]) -> FreeCapacity:
    """The free capacity without what is kept for these holders: a copy, unless no reservation holds the job back."""
    if not against:
        return room
    narrowed = room.copy()
    for holder in sorted(against):
        # What is only hidden is not partitioned anew: it counts as no change.
        narrowed.occupy(room.reserved.get(holder, ()), is_new=False)
    return narrowed
