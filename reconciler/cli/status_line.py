"""One line on a terminal's stderr that says what a command waits for, and for how long; it is gone afterwards."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer
from typing import Final

from reconciler.analysis.reports.plain_text import printable

QUICK_S: Final = 2.0
"""What takes less is over before a person wonders."""


@contextmanager
def status_line(after_s: float = 0.0) -> Iterator[Callable[[str], None]]:
    """Yields what changes its text; it is shown after so many seconds. Where stderr is no terminal nothing is shown."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.table import Column

    console = Console(stderr=True, markup=False, emoji=False, highlight=False)
    told = TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis"))
    progress = Progress(SpinnerColumn(), TimeElapsedColumn(), told, console=console, transient=True)
    line = progress.add_task("", total=None)
    shown = Timer(after_s, progress.start)
    shown.daemon = True
    shown.start()
    try:
        yield lambda text: progress.update(line, description=printable(text))
    finally:
        shown.cancel()
        shown.join()
        if progress.live.is_started:
            progress.stop()


@contextmanager
def busy(words: str) -> Iterator[Callable[[str], None]]:
    """A status line of what is quick as a rule: these words, unless others are told, where it takes longer than `QUICK_S`."""
    with status_line(QUICK_S) as tell:
        tell(words)
        yield tell
