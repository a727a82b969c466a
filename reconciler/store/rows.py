"""What readers and writers of rows share: long lists of names in pieces, rows that are as they were, documents kept by a name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final, Generic, TypeVar

from sqlalchemy import Connection, delete, insert, select

from reconciler.store.tables import kept, leadership

Name = TypeVar("Name", bound=str)
Value = TypeVar("Value")
Stamp = TypeVar("Stamp")

NAMES_MAX: Final = 500
"""In one statement: SQLite took no more than 999 parameters for long."""

ALIKE_MAX: Final = 4_096
ALIKE_CHARACTERS_MAX: Final = 4_096
"""Of texts that are remembered, so that they take at most some ten megabytes."""


_STATE: Final = select(leadership.c.written, leadership.c.until)


def pieces(names: Collection[Name]) -> Iterator[Sequence[Name]]:
    """Each name once, sorted, in as few statements as may be."""
    ordered = sorted(set(names))
    for start in range(0, len(ordered), NAMES_MAX):
        yield ordered[start : start + NAMES_MAX]


class Alike(Generic[Value]):
    """What was made of texts, most of which occur again and again: of equal ones the value is the same. Threads may share it."""

    def __init__(self, make: Callable[[str], Value]) -> None:
        """`make`: a value that never changes, of a text alone."""
        self._make = make
        self._known = lru_cache(maxsize=ALIKE_MAX)(make)

    def read(self, text: str) -> Value:
        """What is made of it."""
        return self._known(text) if len(text) <= ALIKE_CHARACTERS_MAX else self._make(text)

    @property
    def remembered(self) -> int:
        """How many texts are."""
        return self._known.cache_info().currsize


class Unchanged(Generic[Stamp, Value]):
    """What the latest reading made of each row, and nothing older. Threads may share it: a reading takes the place of the last.

    Stamps are read again once anything has been written, or the lease was renewed: a pass begins with that, and so sees what a
    process of a release that counted no writes has written before it.
    """

    def __init__(
        self,
        stamps: Callable[[Connection], Iterable[tuple[str, Stamp]]],
        make: Callable[[Connection, Mapping[str, Stamp]], Mapping[str, Value]],
    ) -> None:
        """`stamps`: of each row its key, and as much as is another whenever the row is. `make`: values of those that are new."""
        self._stamps = stamps
        self._make = make
        self._latest: dict[str, tuple[Stamp, Value]] = {}
        self._read: tuple[tuple[int, int], tuple[Value, ...]] | None = None

    def read(self, connection: Connection) -> tuple[Value, ...]:
        """The values of the rows, in their order, by a transaction that sees one state."""
        written, until = connection.execute(_STATE).one()
        known, state = self._read, (written, until)
        if known is None or known[0] != state:
            self._read = known = state, self._made(connection)
        return known[1]

    def _made(self, connection: Connection) -> tuple[Value, ...]:
        before, now, new = self._latest, dict[str, tuple[Stamp, Value] | None](), dict[str, Stamp]()
        for key, stamp in self._stamps(connection):
            known = before.get(key)
            if known is not None and known[0] == stamp:
                now[key] = known
            else:
                now[key], new[key] = None, stamp
        made = self._make(connection, new) if new else {}
        self._latest = {key: known or (new[key], made[key]) for key, known in now.items()}
        return tuple([value for _, value in self._latest.values()])


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
