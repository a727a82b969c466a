"""A report before it is text: headline, verdict and sections of rows, with what others wrote kept apart from our own words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from solver.model.quantities import Instant

When = Callable[[Instant], str]
"""Writes a point in time: in the reader's own zone, or in UTC where many read the same text."""


@dataclass(frozen=True, slots=True)
class UntrustedText:
    """What policy, jobs or users say: names, messages, places. Each kind of report makes it harmless in its own way.

    No `str`, so that it can't slip into our own words unnoticed.
    """

    text: str


Words = Sequence[str | UntrustedText]
"""A sentence or a cell in pieces; those that are `UntrustedText` are not our own."""


class ReportSection(NamedTuple):
    """Rows under headings; without headings each row is one sentence. `right`: headings of columns that hold numbers.

    `note`: a sentence about all rows, such as their sum; also of those that are folded away. `weighty`: not to be folded itself.
    """

    title: str
    rows: tuple[tuple[Words, ...], ...]
    headings: tuple[str, ...] = ()
    right: frozenset[str] = frozenset()
    note: Words = ()
    weighty: bool = False


class Outline(NamedTuple):
    """`refused`: the verdict is bad news. Sections stand in the order of their weight; `footer` says how all of it was found."""

    headline: Words
    verdict: Words
    refused: bool
    sections: tuple[ReportSection, ...]
    footer: tuple[Words, ...]


def sentences(title: str, lines: Sequence[Words]) -> ReportSection:
    """A section without columns: one of those to be seen without unfolding."""
    return ReportSection(title, tuple((line,) for line in lines), weighty=True)
