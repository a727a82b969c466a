"""What is held of some GPUs, and what they are being made into, read once for all the gangs that one transaction deals with.

It refuses what would give a device out twice, or would have a GPU as a whole and in instances.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from sqlalchemy import Connection, select

from reconciler.protocols.ledger import ClaimRefusedError
from reconciler.store.database import Database
from reconciler.store.rows import pieces
from reconciler.store.tables import holdings, partitions
from solver.model.cluster import DeviceId
from solver.model.inflight import Repartitioning
from solver.model.quantities import MILLI_PER_GPU
from solver.model.workload import JobName, MigSlot, TaskPlacement


class DeviceHold(NamedTuple):
    """What a job holds of a device, and is `charged` for it, in thousandths. `gpu`: the device, or the GPU that it is part of."""

    device: DeviceId
    job: JobName
    milli: int
    charged: int
    gpu: DeviceId


class Occupancy:
    """Of the GPUs that some tasks would be on. `add` keeps it true while a transaction goes on."""

    def __init__(self, database: Database, connection: Connection, tasks: Iterable[TaskPlacement]) -> None:
        self._held: dict[DeviceId, list[DeviceHold]] = {}
        self._changing: dict[DeviceId, Repartitioning] = {}
        for some in pieces(_gpus_under(tasks)):
            columns = (holdings.c[name] for name in DeviceHold._fields)
            self.add(DeviceHold(*row) for row in connection.execute(select(*columns).where(holdings.c.gpu.in_(some))))
            in_flight = select(partitions.c.asked).where(partitions.c.gpu.in_(some), partitions.c.in_flight)
            for stored in connection.execute(in_flight).scalars():
                asked = database.read_document(stored, Repartitioning)
                self._changing[asked.device] = asked

    def add(self, held: Iterable[DeviceHold]) -> None:
        """From here on this is held too."""
        for one in held:
            self._held.setdefault(one.gpu, []).append(one)

    def held(self, gpus: Collection[DeviceId]) -> list[DeviceHold]:
        """What is held of these, by device and job."""
        return sorted(one for gpu in gpus for one in self._held.get(gpu, ()))

    def changing(self, gpus: Collection[DeviceId]) -> Iterator[Repartitioning]:
        """What those of them are being made into that are being partitioned."""
        return (self._changing[gpu] for gpu in sorted(gpus) if gpu in self._changing)

    def refuse_divided(self, tasks: Iterable[TaskPlacement]) -> None:
        """Raises ClaimRefusedError where a GPU would be held as a whole and in instances, or is being made into something else."""
        tasks = tuple(tasks)
        instances = {device: slot.gpu for device, slot in _slots(tasks).items()}
        wholes = {device for task in tasks if task.mig is None for device in task.devices}
        wanted = wholes | set(instances.values())
        both = tuple(sorted(wholes & set(instances.values())))
        if both:
            raise ClaimRefusedError(f"{both[0]} is wanted as a whole and in instances", both)
        for held in self.held(wanted):
            if (held.gpu in wholes) != (held.device == held.gpu):
                raise ClaimRefusedError(f"already held: {held.device} by {held.job}", (held.gpu,))
        for asked in self.changing(wanted):
            _refuse_other_than(asked, wholes, instances)

    def refuse_held(self, job: JobName, tasks: Iterable[TaskPlacement]) -> None:
        """Raises ClaimRefusedError where these tasks want more of a device than is free, the job's own other tasks included."""
        tasks = tuple(tasks)
        wanted = _wanted(tasks)
        twice = tuple(device for device, milli in wanted.items() if milli > MILLI_PER_GPU)
        if twice:
            raise ClaimRefusedError(f"{job} names a device twice", twice)
        held = [one for one in self.held(_gpus_under(tasks)) if one.device in wanted]
        for one in held:
            wanted[one.device] += one.milli
        full = [one for one in held if wanted[one.device] > MILLI_PER_GPU]
        if full:
            whose = ", ".join(f"{one.device} by {one.job}" for one in full)
            raise ClaimRefusedError(f"already held: {whose}", tuple(dict.fromkeys(one.device for one in full)))


def held_by(job: JobName, tasks: Iterable[TaskPlacement]) -> Iterator[DeviceHold]:
    """What a job holds by its tasks."""
    tasks = tuple(tasks)
    slots = _slots(tasks)
    for device, milli in _wanted(tasks).items():
        slot = slots.get(device)
        yield DeviceHold(device, job, milli, slot.cost if slot else milli, slot.gpu if slot else device)


def _gpus_under(tasks: Iterable[TaskPlacement]) -> set[DeviceId]:
    """The GPUs that tasks hold, share, or have an instance of."""
    return {gpu for task in tasks for gpu in task.on_gpus}


def _slots(tasks: Iterable[TaskPlacement]) -> dict[DeviceId, MigSlot]:
    """The MIG instances among the devices of tasks."""
    return {slot.instance.id_on(slot.gpu): slot for task in tasks for slot in task.slots}


def _refuse_other_than(asked: Repartitioning, wholes: set[DeviceId], instances: dict[DeviceId, DeviceId]) -> None:
    coming = {one.id_on(asked.device) for one in asked.instances or ()}
    strange = sorted(device for device, gpu in instances.items() if gpu == asked.device and device not in coming)
    if strange or (asked.device in wholes and asked.instances is not None):
        raise ClaimRefusedError(f"{asked.device} is being partitioned into something else", (asked.device,))


def _wanted(tasks: Iterable[TaskPlacement]) -> Counter[DeviceId]:
    """What tasks want of each device, in thousandths."""
    wanted: Counter[DeviceId] = Counter()
    for task in tasks:
        for device in task.devices:
            wanted[device] += MILLI_PER_GPU if task.share is None else task.share
    return wanted
