"""The tables about agents of nodes. They are part of the schema whose version stands in `schema`."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Table

from reconciler.store.columns import String
from reconciler.store.schema import metadata, since

agents = Table(
    "agents",
    metadata,
    Column("node", String, primary_key=True),
    Column("generation", BigInteger, nullable=False),  # certificates of older ones count no more
    Column("joined_at", BigInteger, nullable=False),
    Column("renewed_at", BigInteger, nullable=False),
    Column("until", BigInteger, nullable=False),  # when the newest certificate ends
    Column("revoked_at", BigInteger),  # absent while its certificates count
    Column("revoked_by", String, nullable=False),
    info=since(14),
)

# Who may become the agent of a node. The token itself is nowhere.
agent_invitations = Table(
    "agent_invitations",
    metadata,
    Column("node", String, primary_key=True),
    Column("token_hash", String, nullable=False, unique=True),
    Column("by", String, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("until", BigInteger, nullable=False),
    Column("key", String, nullable=False),  # of whoever used it; empty: nobody has
    info=since(14),
)
