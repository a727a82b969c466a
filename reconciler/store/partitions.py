"""What GPUs were asked to be partitioned into, in SQL."""

from __future__ import annotations

from sqlalchemy import delete, insert, select, update

from reconciler.protocols.backend import Epoch
from reconciler.protocols.partitionings import COUNTED_MS
from reconciler.store.database import Database
from reconciler.store.partition_conflicts import refuse_in_use
from reconciler.store.tables import partition_changes, partitions
from solver.model.cluster import DeviceId
from solver.model.document import encode
from solver.model.inflight import Repartitioning
from solver.model.quantities import Instant


class SqlPartitions:
    """The part of Ledger that is about GPUs that are partitioned anew."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def repartition(self, epoch: Epoch, asked: Repartitioning) -> None:
        """The intent, and a change that counts; or nothing of it."""
        row = {"gpu": asked.device, "attempt": asked.attempt, "in_flight": True, "asked": encode(asked).decode()}
        with self._database.writing(epoch) as connection:
            refuse_in_use(connection, asked)
            connection.execute(delete(partitions).where(partitions.c.gpu == asked.device))
            connection.execute(insert(partitions).values(row))
            connection.execute(delete(partition_changes).where(partition_changes.c.at < asked.asked_at - COUNTED_MS))
            counted = {"gpu": asked.device, "attempt": asked.attempt, "at": asked.asked_at}
            connection.execute(insert(partition_changes).values(counted))

    def end_repartition(self, epoch: Epoch, device: DeviceId, attempt: int) -> None:
        """The intent goes; its number stays."""
        with self._database.writing(epoch) as connection:
            done = (partitions.c.gpu == device) & (partitions.c.attempt == attempt)
            connection.execute(update(partitions).where(done).values(in_flight=False))

    def repartitions(self) -> tuple[Repartitioning, ...]:
        """Every change in flight, sorted by GPU."""
        query = select(partitions.c.asked).where(partitions.c.in_flight).order_by(partitions.c.gpu)
        with self._database.reading() as connection:
            stored = connection.execute(query).scalars().all()
        found = (self._database.read_document(text, Repartitioning) for text in stored)
        return tuple(sorted(found, key=lambda asked: asked.device))

    def repartition_attempts(self) -> dict[DeviceId, int]:
        """The last attempt of each GPU."""
        with self._database.reading() as connection:
            rows = connection.execute(select(partitions.c.gpu, partitions.c.attempt)).all()
        return {DeviceId(row.gpu): row.attempt for row in rows}

    def repartitioned_since(self, at: Instant) -> tuple[tuple[DeviceId, Instant], ...]:
        """Each change that was asked for after an instant."""
        query = select(partition_changes).where(partition_changes.c.at > at)
        with self._database.reading() as connection:
            rows = connection.execute(query.order_by(partition_changes.c.at, partition_changes.c.gpu)).all()
        return tuple((DeviceId(row.gpu), Instant(row.at)) for row in rows)
