"""What a task wrote, as a terminal may be shown it: text and colours, and nothing else that steers it."""

from __future__ import annotations

import codecs
import re
from typing import Final

_STEERS: Final = re.compile(
    "\x1b\\[[0-9;:]*m"  # Colours (ECMA-48, SGR): alone of all sequences they are let through.
    "|[\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
_UNFINISHED: Final = re.compile("\x1b(\\[[0-9;:]{0,64})?\\Z")
"""What may become colours with the next piece."""


class TerminalText:
    """Takes bytes piece by piece, however they are cut. Lines, tabs, returns to the begin of a line and colours are let through."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self._has_colours = False

    def of(self, piece: bytes) -> str:
        """The text of a piece; what others wrote to steer a terminal is spelled out."""
        return self._safe(self._decoder.decode(piece), is_last=False)

    def end(self) -> str:
        """What is left, and the terminal's own colours again."""
        return self._safe(self._decoder.decode(b"", final=True), is_last=True) + "\x1b[0m" * self._has_colours

    def _safe(self, text: str, *, is_last: bool) -> str:
        text = self._held + text
        cut = None if is_last else _UNFINISHED.search(text)
        at = cut.start() if cut else len(text)
        text, self._held = text[:at], text[at:]
        return _STEERS.sub(self._shown, text)

    def _shown(self, found: re.Match[str]) -> str:
        written = found[0]
        if len(written) > 1:
            self._has_colours = True
            return written
        return f"\\x{ord(written):02x}" if ord(written) < 256 else f"\\u{ord(written):04x}"
