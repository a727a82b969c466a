"""Columns of text that mean the same in every database: sorted by code point, and never refused for a NUL."""

from __future__ import annotations

import sqlalchemy
from sqlalchemy import Dialect, TypeDecorator
from sqlalchemy.types import TypeEngine

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


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
