"""One line on a terminal's stderr that says what a command waits for, and for how long; it is gone afterwards."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from reconciler.analysis.reports.plain_text import printable


@contextmanager
def status_line() -> Iterator[Callable[[str], None]]:
    """Yields what changes its text. Where stderr is no terminal nothing is shown."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.table import Column

    console = Console(stderr=True, markup=False, emoji=False, highlight=False)
    told = TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis"))
    with Progress(SpinnerColumn(), TimeElapsedColumn(), told, console=console, transient=True) as progress:
        line = progress.add_task("", total=None)
        yield lambda text: progress.update(line, description=printable(text))
