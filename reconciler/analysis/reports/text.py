"""An outline for people at a terminal: colour only where one shows it, long lists folded, nothing of what others wrote obeyed."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.text import Text

from reconciler.analysis.reports.outline import Outline, ReportSection
from reconciler.analysis.reports.plain_text import plain_of
from reconciler.analysis.reports.tables import UNLIMITED, table_of

ROWS_MAX = 10
"""Of a section that is folded: what one sees at a glance."""
_INDENTED = 2


def text(outline: Outline, *, unfold: bool = False, columns: int = UNLIMITED, colour: bool = False) -> str:
    """The whole outline; without `unfold` at most `ROWS_MAX` rows of each section."""
    # Nothing of the environment: the same outline is the same text everywhere. legacy_windows would be looked up.
    console = Console(
        file=StringIO(),
        width=UNLIMITED,  # Tables keep to theirs, and terminals wrap all else.
        force_terminal=colour,
        color_system="standard" if colour else None,
        markup=False,
        emoji=False,
        highlight=False,
        legacy_windows=False,
        _environ={},
    )
    with console.capture() as captured:
        for part in _parts(outline, None if unfold else ROWS_MAX, columns):
            console.print(part, soft_wrap=isinstance(part, Text))
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def _parts(outline: Outline, rows_max: int | None, columns: int) -> Iterator[RenderableType]:
    yield Text(plain_of(outline.headline), style="bold")
    yield Text(plain_of(outline.verdict), style="bold red" if outline.refused else "")
    for section in outline.sections:
        yield Text()
        yield Text(section.title, style="bold")
        yield from _rows(section, rows_max, columns)
    yield Text()
    yield from (Text(plain_of(line)) for line in outline.footer)


def _rows(section: ReportSection, rows_max: int | None, columns: int) -> Iterator[RenderableType]:
    shown = section.rows[:rows_max]
    if section.headings:
        cells = ([plain_of(cell) for cell in row] for row in shown)
        table = table_of(section.headings, cells, section.right, columns - _INDENTED)
        yield Padding(table, (0, 0, 0, _INDENTED), expand=False)
    else:
        yield from (Text(f"  {plain_of(cell)}") for row in shown for cell in row)
    left = len(section.rows) - len(shown)
    if left:
        yield Text(f"  … and {left} more; --all shows them, -o json has all")
    if section.note:
        yield Text(f"  {plain_of(section.note)}")
