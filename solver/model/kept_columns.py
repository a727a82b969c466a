"""What follows from each of many things alone, of which each round works out only that of what is new.

A running job stays the very same object for hours, and so does what follows from it. Numbers stand in columns: rows are taken over
from the round before, all at once, to where the job stands now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from operator import is_
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from solver.model.arrays import Ints

Item = TypeVar("Item")
Value = TypeVar("Value")
Row = Sequence[int]


class KeptValues(Generic[Item, Value]):
    """A value that follows from each item alone, and from a basis; `RoundCache.lasting` carries them on."""

    def __init__(self) -> None:
        # With the items themselves: while they are here no other thing can have their ids.
        self._latest: tuple[tuple[object, ...], dict[int, tuple[Item, Value]]] = (), {}

    def of(self, items: Iterable[Item], make: Callable[[Item], Value], *basis: object) -> list[Value]:
        """Those of some items, none of them twice, in their order; `make` may depend on the item and the basis alone."""
        of, known = self._latest
        known = known if of == basis else {}
        found = {(at := id(item)): known.get(at) or (item, make(item)) for item in items}
        self._latest = basis, found
        return [value for _, value in found.values()]


class Rows(NamedTuple):
    """Rows of some items, in their order: `columns`, one array each; `lengths`: how many rows each item has."""

    columns: tuple[Ints, ...]
    lengths: Ints


class KeptColumns(Generic[Item]):
    """Rows that follow from each item alone, and from a basis; there are none at first. `RoundCache.lasting` carries them on."""

    def __init__(self, width: int) -> None:
        """`width`: how many columns there are."""
        self._basis: tuple[object, ...] = ()
        # While they are here no other thing can have their ids.
        self._items: Sequence[Item] = ()
        self._number: dict[int, int] = {}
        self._rows: Ints = np.zeros((0, width), dtype=np.int64)
        self._count: Ints = np.zeros(0, dtype=np.int64)

    def of(
        self,
        items: Sequence[Item],
        rows_of: Callable[[Item], Iterable[Row]],
        *basis: object,
        is_stale: Callable[[Item], bool] | None = None,
    ) -> Rows:
        """Those of some items; `rows_of` may depend on the item and the basis alone. `is_stale`: what is to be worked out anew."""
        if self._basis != basis:
            self._basis, self._number = basis, {}
        elif is_stale is None and len(items) == len(self._items) and all(map(is_, items, self._items)):
            return Rows(tuple(self._rows.T), self._count)
        known = self._number
        numbers = [known.get(id(item), -1) for item in items]
        if is_stale is not None:
            numbers = [
                -1 if number >= 0 and is_stale(item) else number for number, item in zip(numbers, items, strict=True)
            ]
        new = [place for place, number in enumerate(numbers) if number < 0]
        if new or len(items) != len(self._items) or numbers != list(range(len(items))):
            self._take_over(items, np.array(numbers, dtype=np.int64), new, rows_of)
        return Rows(tuple(self._rows.T), self._count)

    def _take_over(
        self, items: Sequence[Item], numbers: Ints, new: Sequence[int], rows_of: Callable[[Item], Iterable[Row]]
    ) -> None:
        made = [list(rows_of(items[place])) for place in new]
        before = len(self._count)
        numbers[list(new)] = np.arange(before, before + len(new))
        more = np.fromiter(chain.from_iterable(chain.from_iterable(made)), dtype=np.int64)
        rows = np.concatenate([self._rows, more.reshape(-1, self._rows.shape[1])])
        counts = np.concatenate([self._count, np.array([len(of) for of in made], dtype=np.int64)])
        first = np.cumsum(counts) - counts
        count = counts[numbers]
        # The rows of each item, one after the other.
        begin = np.cumsum(count) - count
        self._rows = rows[np.repeat(first[numbers] - begin, count) + np.arange(int(count.sum()))]
        self._rows.setflags(write=False)
        self._count, self._items = count, items
        self._number = {id(item): number for number, item in enumerate(items)}
