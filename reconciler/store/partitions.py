"""What GPUs were asked to be partitioned into, in SQL."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, delete, insert, select, update

from reconciler.protocols.backend import Epoch
from reconciler.protocols.ledger import COUNTED_MS, ClaimRefusedError
from reconciler.store.database import Database
from reconciler.store.tables import holdings, partition_changes, partitions
from solver.model.cluster import DeviceId
from solver.model.document import encode
from solver.model.inflight import Repartitioning
from solver.model.quantities import Instant

_IN_FLIGHT: Final = select(partitions.c.asked).where(partitions.c.in_flight).order_by(partitions.c.gpu)


class PartitionTable:
    """Implements Partitionings."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, epoch: Epoch, asked: Repartitioning) -> None:
        """The intent, and a change that counts; or nothing of it."""
        row = {"gpu": asked.device, "attempt": asked.attempt, "in_flight": True, "asked": encode(asked).decode()}
        with self._database.writing(epoch) as connection:
            _refuse_in_use(connection, asked)
            connection.execute(delete(partitions).where(partitions.c.gpu == asked.device))
            connection.execute(insert(partitions).values(row))
            connection.execute(delete(partition_changes).where(partition_changes.c.at < asked.asked_at - COUNTED_MS))
            counted = {"gpu": asked.device, "attempt": asked.attempt, "at": asked.asked_at}
            connection.execute(insert(partition_changes).values(counted))

    def end(self, epoch: Epoch, device: DeviceId, attempt: int) -> None:
        """The intent goes; its number stays."""
        with self._database.writing(epoch) as connection:
            done = (partitions.c.gpu == device) & (partitions.c.attempt == attempt)
            connection.execute(update(partitions).where(done).values(in_flight=False))

    def in_flight(self) -> tuple[Repartitioning, ...]:
        """Every change in flight, sorted by GPU."""
        with self._database.reading() as connection:
            stored = connection.execute(_IN_FLIGHT).scalars().all()
        found = (self._database.read_document(text, Repartitioning) for text in stored)
        return tuple(sorted(found, key=lambda asked: asked.device))

    def last_attempts(self) -> dict[DeviceId, int]:
        """The last attempt of each GPU."""
        with self._database.reading() as connection:
            rows = connection.execute(select(partitions.c.gpu, partitions.c.attempt)).all()
        return {DeviceId(row.gpu): row.attempt for row in rows}

    def begun_since(self, at: Instant) -> tuple[tuple[DeviceId, Instant], ...]:
        """Each change that was asked for after an instant."""
        query = select(partition_changes).where(partition_changes.c.at > at)
        with self._database.reading() as connection:
            rows = connection.execute(query.order_by(partition_changes.c.at, partition_changes.c.gpu)).all()
        return tuple((DeviceId(row.gpu), Instant(row.at)) for row in rows)


def _refuse_in_use(connection: Connection, asked: Repartitioning) -> None:
    """Raises ClaimRefusedError where a job holds what would go, or the attempt is not the next one."""
    stays = {one.id_on(asked.device) for one in asked.instances or ()}
    query = select(holdings).where(holdings.c.gpu == asked.device).order_by(holdings.c.device, holdings.c.job)
    for row in connection.execute(query):
        if row.device not in stays:
            raise ClaimRefusedError(f"already held: {row.device} by {row.job}", (asked.device,))
    last = connection.execute(select(partitions.c.attempt).where(partitions.c.gpu == asked.device)).scalar() or 0
    if asked.attempt != last + 1:
        raise ClaimRefusedError(f"attempt {asked.attempt} of {asked.device} is not the next; its last was {last}")
