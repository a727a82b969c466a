"""Tables that every pass reads whole: a row that is as it was gives the very object that it gave then."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from sqlalchemy import Row

Value = TypeVar("Value")
Beside = TypeVar("Beside")


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
