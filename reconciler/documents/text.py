"""Bytes to text that a YAML parser may see: UTF-8, printable, and small enough."""

from __future__ import annotations

import codecs
import re

from reconciler.model.problem import START, InvalidDocumentsError, SourceLocation, problem_at

BYTES_MAX = 1024 * 1024
"""Of one document file. A list of 20,000 node names takes about half of it."""

# What YAML 1.2 section 5.1 calls printable, without the byte order mark.
_NOT_PRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_MARKS = {
    codecs.BOM_UTF8: (
        "byte-order-mark",
        "the file begins with a byte order mark",
        "Save it as UTF-8 without a byte order mark.",
    ),
    codecs.BOM_UTF16_LE: ("not-utf-8", "the file is UTF-16", "Save it as UTF-8."),
    codecs.BOM_UTF16_BE: ("not-utf-8", "the file is UTF-16", "Save it as UTF-8."),
}


def decode_text(raw: bytes, file: str, bytes_max: int = BYTES_MAX) -> str:
    """The file's text; raises InvalidDocumentsError with the one problem that makes it unreadable."""
    if len(raw) > bytes_max:
        problem = problem_at(
            file, START, "too-large", f"the file has {len(raw)} bytes, at most {bytes_max} are read", "Split it."
        )
        raise InvalidDocumentsError([problem])
    for mark, (code, message, fix) in _MARKS.items():
        if raw.startswith(mark):
            raise InvalidDocumentsError([problem_at(file, START, code, message, fix)])
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        place = place_of(raw[: error.start].decode("utf-8"), error.start)
        problem = problem_at(
            file, place, "not-utf-8", f"byte 0x{raw[error.start]:02x} is not UTF-8", "Save the file as UTF-8."
        )
        raise InvalidDocumentsError([problem]) from None
    unprintable = _NOT_PRINTABLE.search(text)
    if unprintable:
        message = f"the character U+{ord(unprintable[0]):04X} is not allowed in YAML"
        place = place_of(text, unprintable.start())
        raise InvalidDocumentsError(
            [problem_at(file, place, "control-character", message, "Delete it, or write it as an escape in quotes.")]
        )
    return text


def place_of(text: str, offset: int) -> SourceLocation:
    """Line and column of a character offset."""
    before = text[:offset]
    return SourceLocation(before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)
