"""Tables for people: as wide as the terminal, or as wide as they need to be where no terminal reads them."""

from __future__ import annotations

from collections.abc import Iterable

import click

from reconciler.analysis.reports.plain_text import printable
from reconciler.analysis.reports.tables import UNLIMITED, table_of

__all__ = ["print_fields", "print_table", "table_of"]


def print_table(headings: Iterable[str], rows: Iterable[Iterable[str]], right: Iterable[str] = ()) -> None:
    """Print such a table."""
    from rich.console import Console

    console = Console(markup=False, emoji=False, highlight=False)
    table = table_of(headings, rows, right, console.width if console.is_terminal else UNLIMITED)
    console.width = UNLIMITED
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        click.echo(line.rstrip(), color=console.is_terminal)


def print_fields(fields: Iterable[tuple[str, str]]) -> None:
    """Print `name  value` lines, the values in one column; further lines of a value stand below its first."""
    listed = list(fields)
    width = max(len(name) for name, _ in listed)
    for name, value in listed:
        first, *more = printable(value).split("\n")
        click.echo(f"{name:<{width}}  {first}".rstrip())
        for line in more:
            click.echo(f"{'':<{width}}  {line}".rstrip())
