"""Tables for people: columns as wide as they need to be, cells folded on a narrow terminal, and never cut."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from reconciler.reports.plain import printable

if TYPE_CHECKING:
    from rich.table import Table


def table_of(headings: Iterable[str], rows: Iterable[Iterable[str]], right: Iterable[str] = ()) -> Table:
    """Rows under headings; the columns named in `right` hold numbers. On a narrow terminal cells are folded, never cut."""
    from rich.table import Table

    numbers = frozenset(right)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading, justify="right" if heading in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(printable(cell) for cell in row))
    return table
