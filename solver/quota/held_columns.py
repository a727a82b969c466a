"""What follows from each running gang alone, as columns: what its eviction costs, what protects it, what its parts are charged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from solver.model.arrays import Ints, Mask
from solver.model.cluster import GpuType
from solver.model.kept_columns import KeptColumns
from solver.model.quantities import Instant
from solver.model.round_cache import RoundCache
from solver.model.workload import Job
from solver.quota.held_use import NEVER
from solver.quota.victims import HeldGang, protected_until


class GangColumns(NamedTuple):
    """By gang. `leaves`: whether it may be asked to; `held`: whether it may be only for a guarantee that has waited for too long.

    `until`: the instant from which on nothing protects it; `until_any_day`: the same however often it was evicted. Of what it
    would lose: `service`, which loses nothing; `started`, `saved` and `interval` as jobs have them, NEVER and 0 where there
    is none.
    """

    value: Ints
    preemptible: Mask
    evictable: Mask
    leaves: Mask
    held: Mask
    until: Ints
    until_any_day: Ints
    service: Mask
    started: Ints
    saved: Ints
    interval: Ints

    def unsaved_ms(self, now: Instant) -> Ints:
        """For how long what each has done would be lost if it left now; as `victims.unsaved_ms` of one job."""
        ran = np.where(self.started == NEVER, 0, np.maximum(0, now - self.started))
        since_saved = np.where(self.saved == NEVER, 0, np.maximum(0, now - self.saved))
        since_interval = np.where(self.interval > 0, ran % np.maximum(self.interval, 1), ran)
        lost = np.where(self.saved == NEVER, since_interval, np.minimum(ran, since_saved))
        return np.where(self.service, 0, lost)


class HeldColumns(NamedTuple):
    """By gang `gangs`, and how many `parts` it is; by holder `place`, `countable` and `devices` as in AllocationTable.

    `charged`: holders, each with the number of one of `gpu_types`, and what it is charged of that in milli-GPU.
    """

    gangs: GangColumns
    parts: Ints
    place: Ints
    countable: Mask
    devices: Ints
    gpu_types: tuple[GpuType, ...]
    charged: tuple[Ints, Ints, Ints]


class GangsInColumns:
    """The columns of gangs, carried from round to round."""

    def __init__(self) -> None:
        self._gangs = KeptColumns[HeldGang](len(GangColumns._fields))
        self._parts = KeptColumns[HeldGang](3)
        self._charges = KeptColumns[HeldGang](3)
        self._types: dict[GpuType, int] = {}

    @classmethod
    def kept(cls, kept: RoundCache | None) -> GangsInColumns:
        """Those of the rounds before."""
        return cls() if kept is None else kept.lasting("gangs in columns", cls)

    def of(self, gangs: Sequence[HeldGang]) -> HeldColumns:
        """Those of some gangs, in their order."""
        value, *columns = self._gangs.of(gangs, _of_gang).columns
        preemptible, evictable, leaves, held = (column.astype(bool) for column in columns[:4])
        until, any_day, service, *times = columns[4:]
        flags = preemptible, evictable, leaves, held
        of_gangs = GangColumns(value, *flags, until, any_day, service.astype(bool), *times)
        (place, whole, devices), parts = self._parts.of(gangs, _of_parts)
        (part, code, milli), charges = self._charges.of(gangs, self._of_charges)
        holder = np.repeat(np.cumsum(parts) - parts, charges) + part
        names = {code: gpu_type for gpu_type, code in self._types.items()}
        used = sorted(names[code] for code in np.unique(code).tolist())
        column = np.zeros(len(self._types), dtype=np.int64)
        column[[self._types[gpu_type] for gpu_type in used]] = np.arange(len(used))
        return HeldColumns(
            of_gangs, parts, place, whole.astype(bool), devices, tuple(used), (holder, column[code], milli)
        )

    def _of_charges(self, gang: HeldGang) -> Iterator[tuple[int, int, int]]:
        for part, holder in enumerate(gang.holders):
            for gpu_type, milli in holder.charge.items():
                yield part, self._types.setdefault(gpu_type, len(self._types)), int(milli)


def _of_gang(gang: HeldGang) -> Iterator[tuple[int, ...]]:
    base = gang.holders[0]
    job, known = base.job, base.priority_class
    checkpoint = job.spec.checkpoint
    yield (
        base.base_priority,
        known.preemptible,
        base.evictable,
        job.leaves != "not",
        bool(job.held),
        protected_until(job, known.protection),
        protected_until(job, msgspec.structs.replace(known.protection, evictions_per_day=None)),
        job.spec.type == "service",
        NEVER if job.started_at is None else job.started_at,
        NEVER if job.saved_at is None else job.saved_at,
        checkpoint.interval if checkpoint else 0,
    )


def _of_parts(gang: HeldGang) -> Iterator[tuple[int, int, int]]:
    for holder, place, whole in zip(gang.holders, gang.places, gang.whole, strict=True):
        yield place, whole, _devices(holder.job)


def _devices(job: Job) -> int:
    return sum([len(task.slots or task.devices) for task in job.placement])
