"""What is wrong with a document: place, problem and fix, as data."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Literal, NamedTuple

from solver.model.document import Document

Severity = Literal["error", "warning", "notice"]
"""A notice is worth knowing and nothing that has to be changed; only an error refuses what it is about."""
Path = tuple[str | int, ...]
"""Leads to a value in a document: keys and list indices from its root."""

_SHOWN_CHARACTERS_MAX = 60


class SourceLocation(NamedTuple):
    """Line and column, both counted from 1."""

    line: int
    column: int


START = SourceLocation(1, 1)


class Problem(Document, frozen=True, order=True, omit_defaults=False):
    """One thing that a person has to change. `code` is a stable slug; problems sort by place."""

    file: str
    line: int
    column: int
    code: str
    message: str
    fix: str = ""
    severity: Severity = "error"

    def __str__(self) -> str:
        fix = f" {self.fix}" if self.fix else ""
        return f"{self.file}:{self.line}:{self.column}: {self.severity}[{self.code}]: {self.message}.{fix}"


class InvalidDocumentsError(Exception):
    """Documents can't be used; `problems` says why, sorted by place."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(problems))
        super().__init__("\n".join(str(problem) for problem in self.problems))


def problem_at(
    file: str, place: SourceLocation, code: str, message: str, fix: str = "", severity: Severity = "error"
) -> Problem:
    """A problem at a place."""
    return Problem(file, place.line, place.column, code, message, fix, severity)


def problem_of(origin: str, code: str, message: str, fix: str = "", severity: Severity = "error") -> Problem:
    """A problem at `file:line`; a file without a line is meant from its start."""
    file, _, line = origin.rpartition(":")
    if line.isdecimal() and line.isascii():
        return problem_at(file, SourceLocation(int(line), 1), code, message, fix, severity)
    return problem_at(origin, START, code, message, fix, severity)


def shown(value: object) -> str:
    """A value as a message quotes it: on one line, without control characters, and short."""
    text = (
        {True: "true", False: "false", None: "null"}.get(value, "") if isinstance(value, bool | None) else repr(value)
    )
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else text[: _SHOWN_CHARACTERS_MAX - 3] + "..."


def did_you_mean(written: object, known: Iterable[str]) -> str:
    """A sentence that offers the nearest known word, or lists the known ones where they are few; else nothing."""
    words = sorted(known)
    nearest = get_close_matches(str(written)[:_SHOWN_CHARACTERS_MAX], words, n=1, cutoff=0.6)
    if nearest:
        return f"Did you mean {nearest[0]}?"
    return f"Known: {', '.join(words)}." if 0 < len(words) <= 12 else ""
