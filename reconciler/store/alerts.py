"""How far each webhook is, in SQL."""

from __future__ import annotations

import uuid
from typing import Any, Final

import msgspec
from sqlalchemy import Row, delete, insert, select, update

from reconciler.model.webhook_delivery import DeliveryState
from reconciler.protocols.backend import Epoch
from reconciler.store.database import Database
from reconciler.store.rows import first_document
from reconciler.store.tables import webhooks
from solver.model.quantities import Instant

_STORE_ID: Final = "store-id"


class SqlAlerts:
    """Implements AlertDeliveries."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def store_id(self) -> str:
        """A UUID, made when it is asked for first."""
        with self._database.writing() as connection:
            return first_document(connection, _STORE_ID, str(uuid.uuid4()))

    def webhooks(self) -> tuple[DeliveryState, ...]:
        """All, sorted by name."""
        with self._database.reading() as connection:
            return tuple(_read(row) for row in connection.execute(select(webhooks).order_by(webhooks.c.webhook)))

    def begin(self, epoch: Epoch, standing: DeliveryState) -> None:
        """A new one."""
        known = select(webhooks.c.cursor).where(webhooks.c.webhook == standing.webhook)
        with self._database.writing(epoch) as connection:
            if connection.execute(known).scalar_one_or_none() is None:
                connection.execute(insert(webhooks).values(msgspec.structs.asdict(standing)))

    def renew(self, epoch: Epoch, webhook: str) -> DeliveryState | None:
        """One, for the leader."""
        with self._database.writing(epoch) as connection:
            row = connection.execute(select(webhooks).where(webhooks.c.webhook == webhook)).one_or_none()
        return None if row is None else _read(row)

    def keep(self, epoch: Epoch, standing: DeliveryState) -> None:
        """What followed."""
        behind = (webhooks.c.webhook == standing.webhook) & (webhooks.c.cursor <= standing.cursor)
        with self._database.writing(epoch) as connection:
            connection.execute(update(webhooks).where(behind).values(msgspec.structs.asdict(standing)))

    def forget(self, epoch: Epoch, webhook: str) -> None:
        """It is gone."""
        with self._database.writing(epoch) as connection:
            connection.execute(delete(webhooks).where(webhooks.c.webhook == webhook))


def _read(row: Row[Any]) -> DeliveryState:
    times = {
        name: Instant(value)
        for name in ("answered_at", "failing_since", "not_before")
        if (value := row._mapping[name]) is not None
    }
    return DeliveryState(**{**row._asdict(), **times})
