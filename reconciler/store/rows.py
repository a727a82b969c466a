"""What readers and writers of rows share: long lists of names in pieces, rows that are as they were, documents kept by a name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Final, Generic, TypeVar

from sqlalchemy import Connection, Row, delete, insert, select

from reconciler.store.tables import kept

Name = TypeVar("Name", bound=str)
Value = TypeVar("Value")
Beside = TypeVar("Beside")

NAMES_MAX: Final = 500
"""In one statement: SQLite took no more than 999 parameters for long."""


def pieces(names: Collection[Name]) -> Iterator[Sequence[Name]]:
    """Each name once, sorted, in as few statements as may be."""
    ordered = sorted(set(names))
    for start in range(0, len(ordered), NAMES_MAX):
        yield ordered[start : start + NAMES_MAX]


class Unchanged(Generic[Value, Beside]):
    """What the latest reading made of each row, and nothing older. Threads may share it: a reading takes the place of the last."""

    def __init__(self, make: Callable[[Row[Any], Beside], Value]) -> None:
        """`make` may depend on nothing but a row, and what is read beside it."""
        self._make = make
        self._latest: dict[str, tuple[object, Value]] = {}

    def read(self, rows: Iterable[tuple[str, Row[Any], Beside]]) -> tuple[Value, ...]:
        """The values of rows, each with its key and what was read beside it; in their order."""
        before, now = self._latest, dict[str, tuple[object, Value]]()
        for key, row, beside in rows:
            of, known = (tuple(row), beside), before.get(key)
            now[key] = known if known is not None and known[0] == of else (of, self._make(row, beside))
        self._latest = now
        return tuple([value for _, value in now.values()])


def kept_document(connection: Connection, what: str) -> str | None:
    """The document of that name, of which only the newest counts; None: none was ever kept."""
    stored: str | None = connection.execute(select(kept.c.document).where(kept.c.what == what)).scalar_one_or_none()
    return stored


def keep_document(connection: Connection, what: str, document: str) -> None:
    """In place of the one before."""
    connection.execute(delete(kept).where(kept.c.what == what))
    connection.execute(insert(kept).values(what=what, document=document))


def first_document(connection: Connection, what: str, document: str) -> str:
    """The first that was ever kept under that name, which is this one where there was none."""
    there = kept_document(connection, what)
    if there is None:
        connection.execute(insert(kept).values(what=what, document=document))
    return document if there is None else there
