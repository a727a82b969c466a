"""Devices that claims hold, and what they have run on them, inside a transaction of the ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, Row, func, insert, select

from reconciler.protocols.stores import ClaimRefusedError
from reconciler.store.occupancy import DeviceHold, Occupancy, gpus_under
from reconciler.store.pieces import pieces
from reconciler.store.tables import holdings
from solver.model.cluster import DeviceId
from solver.model.quantities import MILLI_PER_GPU, Instant
from solver.model.workload import JobName, TaskPlacement


def refuse_held(occupancy: Occupancy, job: JobName, tasks: Iterable[TaskPlacement]) -> None:
    """Raises ClaimRefusedError where these tasks want more of a device than is free, the job's own other tasks included."""
    tasks = tuple(tasks)
    wanted = _wanted(tasks)
    twice = tuple(device for device, milli in wanted.items() if milli > MILLI_PER_GPU)
    if twice:
        raise ClaimRefusedError(f"{job} names a device twice", twice)
    held = [one for one in occupancy.held(gpus_under(tasks)) if one.device in wanted]
    for one in held:
        wanted[one.device] += one.milli
    full = [one for one in held if wanted[one.device] > MILLI_PER_GPU]
    if full:
        whose = ", ".join(f"{one.device} by {one.job}" for one in full)
        raise ClaimRefusedError(f"already held: {whose}", tuple(dict.fromkeys(one.device for one in full)))


def held_by(job: JobName, tasks: Iterable[TaskPlacement]) -> Iterator[DeviceHold]:
    """What a job holds by its tasks."""
    tasks = tuple(tasks)
    slots = {device: task.mig for task in tasks if task.mig for device in task.devices}
    for device, milli in _wanted(tasks).items():
        slot = slots.get(device)
        yield DeviceHold(device, job, milli, slot.cost if slot else milli, slot.gpu if slot else device)


def hold(connection: Connection, held: Iterable[DeviceHold]) -> None:
    """Write it, in one statement."""
    rows = [one._asdict() for one in held]
    if rows:
        connection.execute(insert(holdings), rows)


def ran(connection: Connection, held: Sequence[Row[Any]], at: Instant) -> dict[JobName, int]:
    """GPU-milliseconds that attempts have run until `at`, at all their sizes, by job. `held`: the rows of their claims."""
    running = {row.job: row for row in held if row.running_since is not None}
    charged: dict[str, int] = {}
    for some in pieces(running):
        query = select(holdings.c.job, func.sum(holdings.c.charged)).where(holdings.c.job.in_(some))
        charged.update(tuple(row) for row in connection.execute(query.group_by(holdings.c.job)))
    return {
        JobName(job): int(row.ran_gpu_ms + charged.get(job, 0) * _span_ms(row, at) // MILLI_PER_GPU)
        for job, row in running.items()
    }


def _span_ms(row: Row[Any], at: Instant) -> int:
    """How long it has run at the size that it has."""
    sized_at: int = max(row.running_since, row.sized_at or 0)
    return max(0, at - sized_at)


def _wanted(tasks: Iterable[TaskPlacement]) -> Counter[DeviceId]:
    """What tasks want of each device, in thousandths."""
    wanted: Counter[DeviceId] = Counter()
    for task in tasks:
        for device in task.devices:
            wanted[device] += MILLI_PER_GPU if task.share is None else task.share
    return wanted
