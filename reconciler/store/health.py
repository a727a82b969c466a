"""What is known of nodes' health, in SQL."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec
from sqlalchemy import Row, delete, insert, select, update

from reconciler.model.health_record import NodeHealth
from reconciler.protocols.backend import Epoch
from reconciler.store.database import Database
from reconciler.store.tables import node_health
from solver.model.cluster import NodeName
from solver.model.document import encode
from solver.model.quantities import Instant

_ALL: Final = select(node_health).order_by(node_health.c.node)


class SqlNodeHealths:
    """Implements NodeHealths."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def all(self) -> tuple[NodeHealth, ...]:
        """Every record."""
        with self._database.reading() as connection:
            return tuple(map(self._read, connection.execute(_ALL).all()))

    def keep(self, epoch: Epoch, records: Iterable[NodeHealth]) -> None:
        """One transaction for all of them."""
        with self._database.writing(epoch) as connection:
            for record in records:
                named = node_health.c.node == record.node
                if not record.findings:
                    connection.execute(delete(node_health).where(named))
                    continue
                row = {"record": encode(msgspec.structs.replace(record, forgiven_at=None)).decode()}
                if not connection.execute(update(node_health).where(named).values(row)).rowcount:
                    connection.execute(insert(node_health).values(row | {"node": record.node}))

    def forgive(self, node: NodeName, at: Instant) -> NodeHealth | None:
        """The instant has a column of its own, so that the leader's next write leaves it alone."""
        named = node_health.c.node == node
        with self._database.writing() as connection:
            there = connection.execute(select(node_health).where(named)).one_or_none()
            if there is None:
                return None
            connection.execute(update(node_health).where(named).values(forgiven_at=at))
            return self._read(there)

    def _read(self, row: Row[Any]) -> NodeHealth:
        record = self._database.read_document(row.record, NodeHealth)
        forgiven_at = None if row.forgiven_at is None else Instant(row.forgiven_at)
        return msgspec.structs.replace(record, forgiven_at=forgiven_at)
