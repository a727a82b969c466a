"""What a run left as its plan, judged: one text of bounded length that begins with the hidden marker; anything else is no plan."""

from __future__ import annotations

import re
from typing import Final

PLAN_FILE: Final = "plan.md"
PAGE_FILE: Final = "plan.html"

BYTES_MAX: Final = 60_000
"""What `quorate plan -o markdown` keeps to."""

_MARKER: Final = re.compile(r"<!-- quorate:plan:v1( [A-Za-z0-9%._~-]+)? -->")
_COMMAND: Final = re.compile(r"^([^\S\n]*)/", re.MULTILINE)
"""A line that begins with a slash: to GitLab it is an order, which the user of the token gives."""


class UnusablePlanError(Exception):
    """It is no plan of Quorate's. Says why, and quotes nothing of it."""


def comment_of(written: bytes, page: str) -> tuple[str, str]:
    """The marker, and the comment that begins with it. `page` is where all of it is, as the host says; "": nowhere.

    Raises UnusablePlanError.
    """
    if len(written) > BYTES_MAX:
        raise UnusablePlanError(f"it has more than {BYTES_MAX:,} bytes")
    try:
        lines = written.decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise UnusablePlanError("it is no text in UTF-8") from error
    if not lines or not _MARKER.fullmatch(lines[0]):
        raise UnusablePlanError("it does not begin with the marker")
    marker = lines[0]
    text = _COMMAND.sub(r"\1\\/", "\n".join(_printable(line) for line in lines)).rstrip()
    if page:
        text += f"\n\n[All of it as a page]({page}), with the queues and racks before and after."
    return marker, text + "\n"


def _printable(line: str) -> str:
    """Without control characters: no comment needs them, and one in front of a slash must not hide it."""
    return "".join(letter for letter in line if letter == "\t" or not (letter < " " or "\x7f" <= letter <= "\x9f"))
