"""What others wrote, in Markdown: as code, so that it is the text that it is and no markup, mention, reference or link.

GitHub, GitLab and Gitea look for @mentions, #references, commit ids and bare addresses in text alone, never in code (the filters of
github.com/gjtorikian/html-pipeline skip `code`). Escaping them one by one would have to know them all.
"""

from __future__ import annotations

import re

from reconciler.analysis.reports.outline import Words
from reconciler.analysis.reports.plain_text import one_line

SHOWN_CHARACTERS_MAX = 200
"""Of one name or message: enough to know it by, and what is longer is meant to push the rest out of sight."""
_BACKTICKS = re.compile("`+")


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
