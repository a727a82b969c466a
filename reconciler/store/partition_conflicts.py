"""Keeps claims and partitionings of one GPU apart, inside a transaction of the ledger."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, select

from reconciler.protocols.stores import ClaimRefusedError
from reconciler.store.occupancy import Occupancy
from reconciler.store.tables import holdings, partitions
from solver.model.cluster import DeviceId
from solver.model.inflight import Repartitioning
from solver.model.workload import TaskPlacement


def refuse_divided(occupancy: Occupancy, tasks: Iterable[TaskPlacement]) -> None:
    """Raises ClaimRefusedError where a GPU would be held as a whole and in instances, or is being made into something else."""
    tasks = tuple(tasks)
    instances = {device: task.mig.gpu for task in tasks if task.mig for device in task.devices}
    wholes = {device for task in tasks if task.mig is None for device in task.devices}
    wanted = wholes | set(instances.values())
    both = tuple(sorted(wholes & set(instances.values())))
    if both:
        raise ClaimRefusedError(f"{both[0]} is wanted as a whole and in instances", both)
    for held in occupancy.held(wanted):
        if (held.gpu in wholes) != (held.device == held.gpu):
            raise ClaimRefusedError(f"already held: {held.device} by {held.job}", (held.gpu,))
    for asked in occupancy.changing(wanted):
        _refuse_other_than(asked, wholes, instances)


def _refuse_other_than(asked: Repartitioning, wholes: set[DeviceId], instances: dict[DeviceId, DeviceId]) -> None:
    coming = {one.id_on(asked.device) for one in asked.instances or ()}
    strange = sorted(device for device, gpu in instances.items() if gpu == asked.device and device not in coming)
    if strange or (asked.device in wholes and asked.instances is not None):
        raise ClaimRefusedError(f"{asked.device} is being partitioned into something else", (asked.device,))


def refuse_in_use(connection: Connection, asked: Repartitioning) -> None:
    """Raises ClaimRefusedError where somebody holds what would go, or the attempt is not the next one."""
    stays = {one.id_on(asked.device) for one in asked.instances or ()}
    query = select(holdings).where(holdings.c.gpu == asked.device).order_by(holdings.c.device, holdings.c.job)
    for row in connection.execute(query):
        if row.device not in stays:
            raise ClaimRefusedError(f"already held: {row.device} by {row.job}", (asked.device,))
    last = connection.execute(select(partitions.c.attempt).where(partitions.c.gpu == asked.device)).scalar() or 0
    if asked.attempt != last + 1:
        raise ClaimRefusedError(f"attempt {asked.attempt} of {asked.device} is not the next; its last was {last}")
