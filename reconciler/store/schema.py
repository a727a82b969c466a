"""The schema's version, and what all tables have in common: their metadata, and columns that mean the same in every database."""

from __future__ import annotations

from typing import Final

import sqlalchemy
from sqlalchemy import BigInteger, Dialect, Integer, MetaData, TypeDecorator
from sqlalchemy.types import TypeEngine

SCHEMA_VERSION = 15
"""Rises with every release that changes what is below. What a version brought is marked with it (`since`), and by these marks
databases are brought up to date and back (migrations.py). A table or column can only be added: every column that is added is
nullable or has a server default, so that the release before still works."""

READABLE_FROM = 14
"""The oldest schema version with programs that can work on a database of this version.

Those of 14 can: they name the columns that they read and write, what 15 brought to their tables may be NULL, and they know nothing
of its table. What pods hold they end as `lost` as soon as they lead, since no claim tells of it. That loses the time until a newer
program leads again, which puts these pods on record anew (pod_placements.py).
"""

_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"


def since(version: int, *, rows: bool = False) -> dict[str, int]:
    """The mark of a table or column that came with a schema version: `info=since(14)`.

    `rows`: the release before can't read rows that have something in the column. On the way back they go with it.
    """
    return {"since": version, "rows": rows}


metadata = MetaData()

Number = BigInteger().with_variant(Integer, "sqlite")
"""SQLite numbers rows by itself only where the key is exactly INTEGER."""


class _AsEverywhere(TypeDecorator[str]):
    """PostgreSQL sorts by the language its cluster was made for, which Python and SQLite do not, and rounds depend on order.

    It also refuses text with a NUL, as in the last words of a task that failed; that goes in as U+FFFD, the mark of a
    character that can't be shown (The Unicode Standard, section 23.8).
    """

    impl: type[sqlalchemy.String] = sqlalchemy.String
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[str]:
        """The type, and on PostgreSQL the order."""
        plain = sqlalchemy.Text if isinstance(self.impl_instance, sqlalchemy.Text) else sqlalchemy.String
        return dialect.type_descriptor(plain(collation="C") if dialect.name == "postgresql" else plain())

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """What is written, and what is compared with it."""
        if value is None or dialect.name != "postgresql":
            return value
        return value.replace("\0", _REPLACEMENT)


class String(_AsEverywhere):
    """A name or a word."""

    cache_ok = True


class Text(_AsEverywhere):
    """A document or prose."""

    impl = sqlalchemy.Text
    cache_ok = True
