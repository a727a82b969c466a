"""Tables for people: columns as wide as they need to be, cells wrapped on a narrow terminal, and no word cut or broken."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from reconciler.analysis.reports.plain_text import printable

if TYPE_CHECKING:
    from rich.table import Table

UNLIMITED: Final = 100_000
"""Columns of characters where a program may read it: nothing is wrapped or cut."""
_GAP: Final = 2
"""Spaces between two columns."""
STATE_STYLES: Final[Mapping[str, str]] = {
    "queued": "yellow",
    "reserved": "yellow",
    "starting": "cyan",
    "running": "green",
    "degraded": "red",
    "checkpointing": "cyan",
    "evicting": "magenta",
    "stopping": "magenta",
    "suspended": "magenta",
    "retrying": "yellow",
    "succeeded": "dim",
    "failed": "red",
    "cancelled": "dim",
}
"""Of cells under STATE, where a terminal shows colours."""
_WORDS: Final = re.compile(r"\s*\S+")
"""As Rich wraps: what indents a word stays with it."""


def table_of(
    headings: Iterable[str],
    rows: Iterable[Iterable[str]],
    right: Iterable[str] = (),
    columns: int | None = None,
    spare: Iterable[str] = (),
) -> Table:
    """Rows under headings; the columns named in `right` hold numbers. States of jobs have colours.

    Its cells are wrapped to have it fit in so many `columns` of characters. Where words would have to be broken for that, those
    without a value are left out, then those named in `spare`, the first first. Where that is not enough it is as wide as it
    needs to be: a terminal wraps lines, and names can still be read and copied. Without `columns` Rich folds words.
    """
    from rich.table import Table
    from rich.text import Text

    numbers = frozenset(right)
    lines = [tuple(printable(cell) for cell in row) for row in rows]
    shown = list(zip(headings, *lines, strict=True))
    widths: list[int | None] = [None] * len(shown)
    if columns is not None:
        for heading in (*_without_values(shown), *spare):
            if _outer(_least(shown)) <= columns:
                break
            shown = [column for column in shown if column[0] != heading]
        widths = [*_widths(shown, columns)]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for (heading, *_), width in zip(shown, widths, strict=True):
        table.add_column(heading, justify="right" if heading in numbers else "left", overflow="fold", width=width)
    for cells in zip(*(column[1:] for column in shown), strict=True):
        table.add_row(
            *(
                Text(cell, STATE_STYLES.get(cell, "")) if heading == "STATE" else cell
                for (heading, *_), cell in zip(shown, cells, strict=True)
            )
        )
    return table


def _without_values(columns: Sequence[Sequence[str]]) -> Iterator[str]:
    """Headings of columns of which nothing is known in any row, the last first."""
    for heading, *cells in reversed(columns):
        if cells and not any(cell.strip(" -") for cell in cells):
            yield heading


def _widths(columns: Sequence[Sequence[str]], room: int) -> list[int]:
    """How wide each column is: as its widest cell, and less, the widest first, where that makes the table fit."""
    from rich.cells import cell_len

    least = _least(columns)
    widths = [max(map(cell_len, column)) for column in columns]
    while _outer(least) <= room < _outer(widths):
        widest = max((at for at, width in enumerate(widths) if width > least[at]), key=widths.__getitem__)
        widths[widest] -= 1
    return widths


def _least(columns: Sequence[Sequence[str]]) -> list[int]:
    """How wide each column is at least, so that no word is broken."""
    from rich.cells import cell_len

    return [max(cell_len(word) for cell in column for word in _WORDS.findall(cell) or [""]) for column in columns]


def _outer(widths: Sequence[int]) -> int:
    """How wide a table of such columns is."""
    return sum(widths) + _GAP * (len(widths) - 1)
