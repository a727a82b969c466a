"""What is held of some GPUs, and what they are being made into, read once for all the gangs that one transaction deals with."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from sqlalchemy import Connection, select

from reconciler.store.database import Database
from reconciler.store.pieces import pieces
from reconciler.store.tables import holdings, partitions
from solver.model.cluster import DeviceId
from solver.model.inflight import Repartitioning
from solver.model.workload import JobName, TaskPlacement


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
        for some in pieces(gpus_under(tasks)):
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


def gpus_under(tasks: Iterable[TaskPlacement]) -> set[DeviceId]:
    """The GPUs that tasks hold, share, or have an instance of."""
    return {task.mig.gpu if task.mig else device for task in tasks for device in task.devices}
