"""What showback answers: what became of all GPU time of a window, and what each queue, user, class or job had of it."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from reconciler.analysis.showback.statement import Charge, ShowbackBy, ShowbackRow
from reconciler.api.payloads import Payload
from solver.model.cluster import GpuType
from solver.model.document import Document
from solver.model.quantities import Instant

NOT_ON_RECORD: Final = "not-on-record"
"""The code of a refusal: capacity was not kept yet, or is not kept any more."""


class CapacityRow(Document, frozen=True, omit_defaults=False):
    """GPU-seconds of one kind of GPUs, exactly: five states, and their sum, `capacity`. `pool` "": of nodes that were not known."""

    pool: str
    gpu_type: GpuType
    capacity: Decimal
    allocated: Decimal
    idle: Decimal
    reserved: Decimal
    unhealthy: Decimal
    partitioning: Decimal


class Showback(Payload, frozen=True, kw_only=True):
    """All GPU time from `start` to `end`: what became of it (`capacity`), and what each row had of what was allocated.

    `start` is later than what was asked for where capacity is on record only from then on (`asked_from`). `unwatched_seconds`: for
    how long no control plane was there to see changes; what was so before counts for that time. `overheld`: GPU-seconds that were
    held beyond what GPUs are, which are counted once; anything but 0 is a fault. `currency` "": nothing has a price.
    `charges`: the same time by period and price, where that is asked for.
    """

    by: ShowbackBy
    asked_from: Instant
    start: Instant
    end: Instant
    unwatched_seconds: float
    overheld: Decimal
    currency: str
    capacity: tuple[CapacityRow, ...]
    rows: tuple[ShowbackRow, ...]
    charges: tuple[Charge, ...] = ()
