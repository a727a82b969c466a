"""The #SBATCH lines of a script, as flags with their values and lines. What the flags mean is in flags.py."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import NamedTuple

from reconciler.documents.slurm.flags import BY_SHORT, FLAGS, UNKNOWN, Flag

_MARK = "#SBATCH"


class ScriptError(ValueError):
    """A script can't become a job; `line` counts from 1, `fix` says what to write instead."""

    def __init__(self, line: int, problem: str, fix: str = "") -> None:
        super().__init__(problem)
        self.line = line
        self.fix = fix


class IgnoredDirective(NamedTuple):
    """What a script asks for or counts on that its job does not have, and why."""

    line: int
    flag: str
    why: str


class Directive(NamedTuple):
    """One flag as it was written. `name` is its long name where it is known, else what was written."""

    line: int
    name: str
    value: str


def has_directives(text: str) -> bool:
    """It is a batch script: it begins with `#!`, and a line of its head is for sbatch."""
    return text.startswith("#!") and any(line.startswith(_MARK) for _, line in _head(text))


def directives(text: str) -> Iterator[Directive]:
    """Every flag in the order in which it stands; raises ScriptError for what can't be read."""
    for number, line in _head(text):
        if line.startswith(_MARK):
            yield from _flags(number, line.removeprefix(_MARK))


def _head(text: str) -> Iterator[tuple[int, str]]:
    """Lines up to the first command: sbatch looks no further."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            return
        yield number, line


def _flags(number: int, written: str) -> Iterator[Directive]:
    try:
        words = shlex.split(written, comments=True)
    except ValueError as error:
        raise ScriptError(number, f"can't be read: {error}", "Close the quotation.") from error
    while words:
        word = words.pop(0)
        name, flag, value = _split(number, word)
        if value is None and (flag.value == "needed" or (flag.value == "unknown" and words and words[0][0] != "-")):
            if not words:
                raise ScriptError(number, f"{word} has no value", f"Write it like {word}=VALUE.")
            value = words.pop(0)
        yield Directive(number, name, value or "")


def _split(number: int, word: str) -> tuple[str, Flag, str | None]:
    """The name of a flag, what is known of it, and its value where that is part of the same word."""
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        return name, FLAGS.get(name, UNKNOWN), value if equals else None
    if not word.startswith("-") or len(word) == 1:
        raise ScriptError(number, f"{word} is no flag", "Flags begin with - or --; quote values with spaces.")
    name = BY_SHORT.get(word[1], word[:2])
    return name, FLAGS.get(name, UNKNOWN), word[2:].removeprefix("=") or None
