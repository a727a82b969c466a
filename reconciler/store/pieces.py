"""Long lists of names in pieces: a database takes only so many parameters in one statement."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final, TypeVar

Name = TypeVar("Name", bound=str)

NAMES_MAX: Final = 500
"""In one statement: SQLite took no more than 999 parameters for long."""


def pieces(names: Collection[Name]) -> Iterator[Sequence[Name]]:
    """Each name once, sorted, in as few statements as may be."""
    ordered = sorted(set(names))
    for start in range(0, len(ordered), NAMES_MAX):
        yield ordered[start : start + NAMES_MAX]
