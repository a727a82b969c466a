"""Claims and intents as they are written in the tables, inside a transaction of the ledger."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, Row, insert, select

from reconciler.protocols.marks import Marks
from reconciler.protocols.stores import Claim
from reconciler.store.database import Database
from reconciler.store.tables import claims, intents
from solver.model.document import encode
from solver.model.inflight import Intent
from solver.model.quantities import Duration, Instant
from solver.model.workload import JobName, TaskPlacement


def claim_of(database: Database, connection: Connection, intent: Intent) -> Claim | None:
    """What the attempt of an intent holds; None: nothing."""
    held = (claims.c.job == intent.job) & (claims.c.attempt == intent.attempt)
    row = connection.execute(select(claims).where(held)).one_or_none()
    return None if row is None else read_claim(database, row)


def intent_named(database: Database, connection: Connection, name: str) -> Intent | None:
    """The intent of that id; None where none is in flight."""
    text = connection.execute(select(intents.c.intent).where(intents.c.id == name)).scalar()
    return None if text is None else database.read_document(text, Intent)


def insert_intents(connection: Connection, asked: Iterable[Intent]) -> None:
    """Write intents of attempts that hold something."""
    rows = [{"id": intent.id, "job": intent.job, "intent": encode(intent).decode()} for intent in asked]
    if rows:
        connection.execute(insert(intents), rows)


def read_claim(database: Database, row: Row[Any]) -> Claim:
    """A claim from its row."""
    return Claim(
        JobName(row.job),
        row.attempt,
        database.read_document(row.tasks, tuple[TaskPlacement, ...]),
        Instant(row.since),
        None if row.running_since is None else Instant(row.running_since),
        None if row.time_limit is None else Duration(row.time_limit),
        row.growth,
        None if row.idle_limit is None else Duration(row.idle_limit),
        Marks() if row.marks is None else database.read_document(row.marks, Marks),
    )
