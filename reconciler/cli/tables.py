"""Tables for people: as wide as the terminal, or as wide as they need to be where no terminal reads them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, NamedTuple

import click

from reconciler.analysis.reports.plain_text import printable
from reconciler.analysis.reports.tables import UNLIMITED, table_of

__all__ = ["REFRESH_S", "Listing", "print_fields", "print_table", "show", "show_again"]

REFRESH_S: Final = 2.0
"""The loop looks at what runs once a second, so more often would show nothing new."""


class Listing(NamedTuple):
    """A table before it is drawn; `right`: of which columns cells are numbers, `spare`: which a narrow terminal goes without."""

    headings: Iterable[str]
    rows: Iterable[Iterable[str]]
    right: Iterable[str] = ()
    spare: Iterable[str] = ()


def print_table(
    headings: Iterable[str], rows: Iterable[Iterable[str]], right: Iterable[str] = (), spare: Iterable[str] = ()
) -> None:
    """Print such a table."""
    from rich.console import Console

    console = Console(markup=False, emoji=False, highlight=False)
    table = table_of(headings, rows, right, console.width if console.is_terminal else UNLIMITED, spare)
    console.width = UNLIMITED
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        click.echo(line.rstrip(), color=console.is_terminal)


def show(parts: Iterable[str | Listing]) -> None:
    """Print lines of text and tables below one another."""
    for part in parts:
        if isinstance(part, str):
            click.echo(printable(part))
        else:
            print_table(*part)


def show_again(parts: Callable[[], Iterable[str | Listing]]) -> None:
    """Show them on a terminal every REFRESH_S seconds, each time in the place of the last, until it is interrupted."""
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    console = Console(markup=False, emoji=False, highlight=False)

    def drawn() -> Group:
        drawings = (
            Text(printable(part))
            if isinstance(part, str)
            else table_of(part.headings, part.rows, part.right, console.width, part.spare)
            for part in parts()
        )
        return Group(*drawings)

    # To interrupt it is how it ends, and no failure.
    with suppress(KeyboardInterrupt), Live(drawn(), console=console, auto_refresh=False) as live:
        while True:
            time.sleep(REFRESH_S)
            live.update(drawn(), refresh=True)


def print_fields(fields: Iterable[tuple[str, str]]) -> None:
    """Print `name  value` lines, the values in one column; further lines of a value stand below its first."""
    listed = list(fields)
    width = max(len(name) for name, _ in listed)
    for name, value in listed:
        first, *more = printable(value).split("\n")
        click.echo(f"{name:<{width}}  {first}".rstrip())
        for line in more:
            click.echo(f"{'':<{width}}  {line}".rstrip())
