"""Tables of pages, as they are read."""

from __future__ import annotations

import html
import re


def cells(text: str, label: str) -> list[list[str]]:
    """The rows of the table of that name; [] where the page has none."""
    found = re.search(rf'aria-label="{re.escape(label)}">\s*<table>.*?<tbody>(.*?)</tbody>', text, re.DOTALL)
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", found[1], re.DOTALL) if found else []
    return [[_read(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)] for row in rows]


def _read(cell: str) -> str:
    bare = re.sub(r"<svg.*?</svg>", "", cell, flags=re.DOTALL).replace("<br>", "\n")
    return html.unescape(re.sub(r"<[^>]+>", "", bare)).strip()
