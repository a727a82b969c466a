"""The tables of what pods took with them when they went: where jobs are pods, no other table knows of them."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Table

from reconciler.store.columns import String
from reconciler.store.schema import metadata, since

ended_gangs = Table(
    "ended_gangs",
    metadata,
    Column("job", String, primary_key=True),
    Column("submitted_at", BigInteger, primary_key=True, index=True),
    Column("queue", String, nullable=False),
    Column("priority_class", String, nullable=False),
    Column("gpus", BigInteger, nullable=False),  # thousandths, of the whole gang
    Column("ran", BigInteger, nullable=False),  # milliseconds, in all its attempts
    info=since(14),
)

gang_evictions = Table(
    "gang_evictions",
    metadata,
    Column("job", String, primary_key=True),
    Column("at", BigInteger, primary_key=True),
    info=since(14),
)
