"""Devices that claims hold, and what they have run on them, inside a transaction of the ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from sqlalchemy import Connection, func, insert, select, update

from reconciler.store.protocols import ClaimRefusedError
from reconciler.store.sql.tables import attempts, claims, holdings
from solver.world.cluster import DeviceId
from solver.world.quantities import MILLI_PER_GPU, Instant
from solver.world.workload import JobName, TaskPlacement


def refuse_held(connection: Connection, job: JobName, tasks: Iterable[TaskPlacement]) -> None:
    """Raises ClaimRefusedError where these tasks want more of a device than is free, the job's own other tasks included."""
    wanted = _wanted(tasks)
    twice = tuple(device for device, milli in wanted.items() if milli > MILLI_PER_GPU)
    if twice:
        raise ClaimRefusedError(f"{job} names a device twice", twice)
    query = select(holdings).where(holdings.c.device.in_(wanted)).order_by(holdings.c.device, holdings.c.job)
    held = connection.execute(query).all()
    for row in held:
        wanted = wanted + Counter({DeviceId(row.device): row.milli})
    full = [row for row in held if wanted[DeviceId(row.device)] > MILLI_PER_GPU]
    if full:
        whose = ", ".join(f"{row.device} by {row.job}" for row in full)
        raise ClaimRefusedError(f"already held: {whose}", tuple(dict.fromkeys(DeviceId(row.device) for row in full)))


def hold(connection: Connection, job: JobName, tasks: Iterable[TaskPlacement]) -> None:
    """Write what the tasks of a job hold, which held nothing before."""
    tasks = tuple(tasks)
    slots = {device: task.mig for task in tasks if task.mig for device in task.devices}
    rows = [
        {"device": device, "job": job, "milli": milli, "gpu": device, "charged": milli}
        | ({"gpu": slots[device].gpu, "charged": slots[device].cost} if device in slots else {})
        for device, milli in _wanted(tasks).items()
    ]
    if rows:
        connection.execute(insert(holdings), rows)


def add_served(connection: Connection, job: JobName, attempt: int, at: Instant) -> None:
    """Keep what an attempt has run, whose claim is about to go."""
    added = attempts.c.served_gpu_ms + ran(connection, job, attempt, at)
    connection.execute(update(attempts).where(attempts.c.job == job).values(served_gpu_ms=added))


def ran(connection: Connection, job: JobName, attempt: int, at: Instant) -> int:
    """GPU-milliseconds that an attempt has run until `at`, at all its sizes."""
    held = select(claims).where(claims.c.job == job, claims.c.attempt == attempt)
    claim = connection.execute(held).one_or_none()
    if claim is None or claim.running_since is None:
        return 0
    milli = connection.execute(select(func.coalesce(func.sum(holdings.c.charged), 0)).where(holdings.c.job == job))
    span_ms = max(0, at - max(claim.running_since, claim.sized_at or 0))
    return int(claim.ran_gpu_ms + milli.scalar_one() * span_ms // MILLI_PER_GPU)


def _wanted(tasks: Iterable[TaskPlacement]) -> Counter[DeviceId]:
    """What tasks want of each device, in thousandths."""
    wanted: Counter[DeviceId] = Counter()
    for task in tasks:
        for device in task.devices:
            wanted[device] += MILLI_PER_GPU if task.share is None else task.share
    return wanted
