"""What a queue is guaranteed, holds and waits for of one type of GPUs, and in which hours, as it is told."""

from __future__ import annotations

from solver.model.cluster import GpuType
from solver.model.document import Document
from solver.model.quantities import Instant, MilliGpu


class HoursInForce(Document, frozen=True, omit_defaults=False):
    """Which hours of a queue's quota are `open`, and from when on others are (`then`); null: from then on they stay as they are."""

    open: tuple[str, ...]
    changes_at: Instant | None
    then: tuple[str, ...] = ()

    def __str__(self) -> str:
        now = f"hours {', '.join(self.open)}" if self.open else "no hours open"
        if self.changes_at is None:
            return now
        return f"{now} until {self.changes_at}, then {', '.join(self.then) or 'none'}"


class QueueLine(Document, frozen=True, omit_defaults=False):
    """GPUs of one type in one queue. `max` null: no ceiling. `borrowed`: the part of `held` above `guaranteed`.

    `fair_share`: what the queue would hold if idle capacity were divided by weight among those that want it now.
    `waiting`: asked for by pending jobs that name the type first. `past_gpu_hours`: decayed past use, 0 where it does not count.
    `lendable`: the most of `guaranteed` that others may borrow; null: all of it.
    """

    gpu_type: GpuType
    guaranteed: MilliGpu
    max: MilliGpu | None
    fair_share: MilliGpu
    held: MilliGpu
    borrowed: MilliGpu
    waiting: MilliGpu
    past_gpu_hours: float = 0.0
    lendable: MilliGpu | None = None
