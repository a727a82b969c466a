"""The schema's version, and what all tables have in common."""

from __future__ import annotations

from sqlalchemy import BigInteger, Integer, MetaData

SCHEMA_VERSION = 14
"""Rises with every release that changes what is below. What a version brought is marked with it (`since`), and by these marks
databases are brought up to date and back (migrations.py). A table or column can only be added: every column that is added is
nullable or has a server default, so that the release before still works."""

READABLE_FROM = 14
"""The oldest schema version whose programs can work on a database of this version."""


def since(version: int) -> dict[str, int]:
    """The mark of a table or column that came with a schema version: `info=since(14)`."""
    return {"since": version}


metadata = MetaData()

Number = BigInteger().with_variant(Integer, "sqlite")
"""SQLite numbers rows by itself only where the key is exactly INTEGER."""
