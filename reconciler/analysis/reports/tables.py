"""Tables for people: columns as wide as they need to be, cells wrapped on a narrow terminal, and no word cut or broken."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from reconciler.analysis.reports.plain_text import printable

if TYPE_CHECKING:
    from rich.table import Table

UNLIMITED: Final = 100_000
"""Columns of characters where a program may read it: nothing is wrapped or cut."""
_GAP: Final = 2
"""Spaces between two columns."""
_WORDS: Final = re.compile(r"\s*\S+")
"""As Rich wraps: what indents a word stays with it."""


def table_of(
    headings: Iterable[str], rows: Iterable[Iterable[str]], right: Iterable[str] = (), columns: int | None = None
) -> Table:
    """Rows under headings; the columns named in `right` hold numbers.

    Its cells are wrapped to have it fit in so many `columns` of characters. Where words would have to be broken for that it is as
    wide as it needs to be: a terminal wraps lines, and names can still be read and copied. Without `columns` Rich folds words.
    """
    from rich.table import Table

    numbers = frozenset(right)
    heads = tuple(headings)
    lines = [tuple(printable(cell) for cell in row) for row in rows]
    widths = [None] * len(heads) if columns is None else _widths(tuple(zip(heads, *lines, strict=True)), columns)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading, width in zip(heads, widths, strict=True):
        table.add_column(heading, justify="right" if heading in numbers else "left", overflow="fold", width=width)
    for line in lines:
        table.add_row(*line)
    return table


def _widths(columns: Sequence[Sequence[str]], room: int) -> list[int]:
    """How wide each column is: as its widest cell, and less, the widest first, where that makes the table fit."""
    from rich.cells import cell_len

    least = [max(cell_len(word) for cell in column for word in _WORDS.findall(cell) or [""]) for column in columns]
    widths = [max(map(cell_len, column)) for column in columns]
    left = room - _GAP * (len(columns) - 1)
    while sum(least) <= left < sum(widths):
        widest = max((at for at, width in enumerate(widths) if width > least[at]), key=widths.__getitem__)
        widths[widest] -= 1
    return widths
