"""Rounds on random tiny worlds and on the worlds of known faults: what the judge finds, kind by kind.

What is not mended yet is listed with how often it was found. Whoever mends something lowers the number, or takes the line away.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.solver.laws.faults import FAULTS, Fault, wrong
from tests.solver.laws.generator import drawn
from tests.solver.laws.judge import KINDS, judged

NOT_YET: tuple[tuple[str, int, int, int], ...] = (
    ("needless", 5, 21, 5),
    ("not-least-harm", 0, 5, 2),
    ("equal-claim", 0, 1, 0),
    ("in-vain", 1, 8, 4),
    ("names-decide", 9, 31, 9),
)
"""A kind, and in how many of the first 300, of 2,400, and of 600 with parts of GPUs it is still found."""

FAULTS_NOT_YET: tuple[tuple[int, int], ...] = ((12, 1), (13, 3))
"""Faults by their numbers, and how many of their worlds are still decided wrongly."""


def found(worlds: int, *, parts: bool = False) -> Counter[str]:
    """In how many worlds each kind is found."""
    count = Counter[str]()
    for number in range(worlds):
        count.update({finding.kind for finding in judged(drawn(number, parts=parts))[1]})
    return count


def more_than(known: dict[str, int], count: Counter[str]) -> dict[str, int]:
    """The kinds that are found more often than is known."""
    return {kind: count[kind] for kind in KINDS if count[kind] > known.get(kind, 0)}


@pytest.mark.parametrize(
    ("column", "worlds", "parts"),
    [
        pytest.param(1, 300, False, marks=pytest.mark.thorough),
        pytest.param(2, 2400, False, marks=pytest.mark.long),
        pytest.param(3, 600, True, marks=pytest.mark.long),
    ],
)
def test_no_law_is_broken_on_tiny_worlds(
    column: int, worlds: int, parts: bool, record_property: Callable[[str, object], None]
) -> None:
    count = found(worlds, parts=parts)
    known = {str(line[0]): int(line[column]) for line in NOT_YET}
    record_property(
        "figure", f"of {worlds} tiny worlds: {', '.join(f'{kind} {n}' for kind, n in sorted(count.items()))}"
    )
    assert more_than(known, count) == {}


@pytest.mark.thorough
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.number}: {fault.title}")
def test_known_faults_do_not_come_back(fault: Fault) -> None:
    bad = {case.about: problem for case in fault.cases() if (problem := wrong(case))}
    assert len(bad) <= dict(FAULTS_NOT_YET).get(fault.number, 0), bad
