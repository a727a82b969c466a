"""Places in Git as links to the page of their document, so that a figure or a reason leads to the line that says it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple
from urllib.parse import quote

_PLACE: Final = re.compile(r"(?P<file>.+?):(?P<line>[1-9][0-9]{0,6})(?::[0-9]+)?")


class Piece(NamedTuple):
    """Part of a sentence; `link` "": plain text."""

    text: str
    link: str = ""


def document_link(origin: str, revision: str = "") -> str:
    """The address of a place (`file:line`); `revision` "": as the revision in force says it. "" where there is no place."""
    if not origin:
        return ""
    found = _PLACE.fullmatch(origin)
    path, line = (found["file"], f"#L{found['line']}") if found else (origin, "")
    asked = f"?revision={quote(revision, safe='')}" if revision else ""
    return f"/policy/documents/{quote(path)}{asked}{line}"


def linked(words: str, origins: Iterable[str]) -> tuple[Piece, ...]:
    """A sentence with those of its places as links that are known to be some, in brackets as reasons state them."""
    known = {f"({origin})": origin for origin in origins if origin}
    if not known:
        return (Piece(words),)
    parts = re.split(f"({'|'.join(map(re.escape, known))})", words)
    return tuple(Piece(part, document_link(known.get(part, ""))) for part in parts if part)
