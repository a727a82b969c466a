"""What others wrote, as plain characters: nothing of it steers a terminal, hides, or runs backwards."""

from __future__ import annotations

from reconciler.analysis.reports.outline import Words


def printable(text: str) -> str:
    """Without control characters, whatever they control: cursors, colours, the direction of writing. Lines stay lines."""
    return "".join(char if char.isprintable() or char == "\n" else f"\\x{ord(char):02x}" for char in text)


def one_line(text: str) -> str:
    """The same, and a line end is a control character too."""
    return printable(text).replace("\n", "\\x0a")


def plain_of(words: Words) -> str:
    """A sentence or a cell; control characters of what others wrote are spelled out."""
    return "".join(piece if isinstance(piece, str) else one_line(piece.text) for piece in words)
