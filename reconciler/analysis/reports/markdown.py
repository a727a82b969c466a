"""An outline as a comment on a pull request: headline first, the rest folded, never longer than a host takes.

What others wrote is in it as code, so that it is the text that it is and no markup, mention, reference or link. GitHub, GitLab and
Gitea look for @mentions, #references, commit ids and bare addresses in text alone, never in code (the filters of
github.com/gjtorikian/html-pipeline skip `code`). Escaping them one by one would have to know them all.
"""

from __future__ import annotations

import re
from urllib.parse import quote

from reconciler.analysis.reports.outline import Outline, ReportSection, Words
from reconciler.analysis.reports.plain_text import one_line
from solver.plan.reason import count

BYTES_MAX = 60_000
"""In UTF-8. GitHub takes 65,536 characters in a comment, and a bot may have a line to add."""

ROWS_MAX = 25
"""Of one section: more is not read in a comment."""

_NOTE_BYTES = 300
"""Room kept for the line that says how many sections were left out."""

SHOWN_CHARACTERS_MAX = 200
"""Of one name or message: enough to know it by, and what is longer is meant to push the rest out of sight."""

_BACKTICKS = re.compile("`+")


def markdown(outline: Outline, cluster: str = "", bytes_max: int = BYTES_MAX) -> str:
    """GitHub-flavoured Markdown of at most `bytes_max` bytes in UTF-8: sections are cut from the last, which matters least.

    Begins with a hidden marker, which is the same for every plan of a cluster, so that a bot finds its comment again.
    """
    beginning = f"{marker(cluster)}\n### {markdown_of(outline.headline)}\n\n**{markdown_of(outline.verdict)}**\n\n"
    ending = "".join(f"<sub>{markdown_of(line)}</sub><br>\n" for line in outline.footer)
    room = bytes_max - _bytes(beginning) - _bytes(ending) - _NOTE_BYTES
    shown, left_out = [], 0
    for section in outline.sections:
        # Once one had to go, what matters less goes as well.
        written = "" if left_out else _fitted(section, room)
        left_out += not written
        room -= _bytes(written)
        shown.append(written)
    note = (
        f"{count(left_out, 'section')} left out, for the length of this comment; `-o json` has all.\n\n"
        if left_out
        else ""
    )
    return f"{beginning}{''.join(shown)}{note}{ending}"


def marker(cluster: str = "") -> str:
    """The comment's first line. What a name could end the hidden part with is written in percent."""
    named = f" {quote(cluster, safe='')}" if cluster else ""
    return f"<!-- quorate:plan:v1{named} -->"


def markdown_of(words: Words, *, cell: bool = False) -> str:
    """A sentence or, with `cell`, a cell of a table. Our own words may hold markup; they hold no pipes."""
    return "".join(piece if isinstance(piece, str) else code(piece.text, cell=cell) for piece in words)


def code(text: str, *, cell: bool = False) -> str:
    """A code span that shows the text: on one line, control characters spelled out, cut where it is very long."""
    shown = one_line(text)
    if not shown.strip():
        return "`(blank)`"
    if len(shown) > SHOWN_CHARACTERS_MAX:
        shown = f"{shown[: SHOWN_CHARACTERS_MAX - 1]}…"
    if cell:
        # Whether two backslashes and a pipe end a cell is what parsers differ in: the one before a pipe is spelled out.
        shown = shown.replace("\\|", "\\x5c|").replace("|", "\\|")
    longest = max((len(run) for run in _BACKTICKS.findall(shown)), default=0)
    fence = "`" * (longest + 1)
    # One space on each side belongs to the fence, and is taken off again where there is one on both.
    room = " " if longest or shown[0] == shown[-1] == " " else ""
    return f"{fence}{room}{shown}{room}{fence}"


def _fitted(section: ReportSection, room: int) -> str:
    """The section with as many of its rows as there is room for; "" where there is none for a single row."""
    beginning = _beginning(section)
    note = f"\n{markdown_of(section.note)}\n" if section.note else ""
    ending = f"{note}\n</details>\n\n"
    room -= _bytes(beginning) + _bytes(ending) + _bytes(_more(len(section.rows)))
    rows: list[str] = []
    for row in section.rows[:ROWS_MAX]:
        written = _row(row, table=bool(section.headings))
        room -= _bytes(written)
        if room < 0:
            break
        rows.append(written)
    if not rows:
        return ""
    left = len(section.rows) - len(rows)
    return f"{beginning}{''.join(rows)}{_more(left) if left else ''}{ending}"


def _beginning(section: ReportSection) -> str:
    summary = f"<details{' open' * section.weighty}><summary>{section.title} ({len(section.rows)})</summary>\n\n"
    if not section.headings:
        return summary
    rules = ("---:" if heading in section.right else "---" for heading in section.headings)
    return f"{summary}| {' | '.join(section.headings)} |\n| {' | '.join(rules)} |\n"


def _row(row: tuple[Words, ...], *, table: bool) -> str:
    if table:
        return f"| {' | '.join(markdown_of(cell, cell=True) for cell in row)} |\n"
    return "".join(f"- {markdown_of(cell)}\n" for cell in row)


def _more(left: int) -> str:
    return f"\n… and {left} more; `-o json` has all.\n"


def _bytes(text: str) -> int:
    return len(text.encode())
