"""Rounds on random tiny worlds and on the worlds of known faults: what the judge finds, kind by kind.

What is not mended yet is listed with how often it was found. Whoever mends something lowers the number, or takes the line away.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.solver.laws.faults import FAULTS, Fault, wrong
from tests.solver.laws.generator import drawn
from tests.solver.laws.judge import KINDS, greedy, judged, production
from tests.solver.laws.loop import Decide

NOT_YET: tuple[tuple[str, int, int, int, int, int, int], ...] = (
    ("entitled-waits", 0, 0, 0, 1, 0, 3),
    ("fewer-entitled", 0, 0, 0, 2, 0, 5),
    ("needless", 0, 3, 1, 1, 2, 1),
    ("not-least-harm", 0, 3, 2, 8, 0, 1),
    ("unlawful", 0, 0, 0, 0, 0, 1),
    ("below-share-pays", 0, 0, 0, 0, 1, 0),
    ("in-vain", 0, 4, 0, 0, 1, 1),
    ("names-decide", 0, 0, 0, 0, 6, 5),
)
"""A kind, and in how many it is found of the first 300, of 2,400, and of 600 with parts of GPUs; of 300 by search; of 300 with
parts all over, and of these by search.
"""

FAULTS_NOT_YET: tuple[tuple[int, int, int], ...] = ((10, 0, 1),)
"""Faults by their numbers, and how many of their worlds are still decided wrongly: by the program, and by search."""


def found(worlds: int, decide: Decide, *, parts: bool = False, strewn: bool = False) -> Counter[str]:
    """In how many worlds each kind is found."""
    count = Counter[str]()
    for number in range(worlds):
        count.update({finding.kind for finding in judged(drawn(number, parts=parts, strewn=strewn), decide)[1]})
    return count


def more_than(known: dict[str, int], count: Counter[str]) -> dict[str, int]:
    """The kinds that are found more often than is known."""
    return {kind: count[kind] for kind in KINDS if count[kind] > known.get(kind, 0)}


@pytest.mark.parametrize(
    ("column", "worlds", "kind", "decide"),
    [
        pytest.param(1, 300, "", production, marks=pytest.mark.thorough, id="program"),
        pytest.param(2, 2400, "", production, marks=pytest.mark.long, id="program-2400"),
        pytest.param(3, 600, "parts", production, marks=pytest.mark.long, id="program-parts"),
        pytest.param(4, 300, "", greedy, marks=pytest.mark.thorough, id="search"),
        pytest.param(5, 300, "strewn", production, marks=pytest.mark.thorough, id="program-strewn"),
        pytest.param(6, 300, "strewn", greedy, marks=pytest.mark.thorough, id="search-strewn"),
    ],
)
def test_no_law_is_broken_on_tiny_worlds(
    column: int, worlds: int, kind: str, decide: Decide, record_property: Callable[[str, object], None]
) -> None:
    count = found(worlds, decide, parts=kind == "parts", strewn=kind == "strewn")
    known = {str(line[0]): int(line[column]) for line in NOT_YET}
    record_property(
        "figure", f"of {worlds} tiny worlds: {', '.join(f'{kind} {n}' for kind, n in sorted(count.items()))}"
    )
    assert more_than(known, count) == {}


@pytest.mark.thorough
@pytest.mark.parametrize("decide", [production, greedy], ids=["program", "search"])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.number}: {fault.title}")
def test_known_faults_do_not_come_back(fault: Fault, decide: Decide) -> None:
    bad = {case.about: problem for case in fault.cases() if (problem := wrong(case, decide))}
    known = {number: counts for number, *counts in FAULTS_NOT_YET}
    assert len(bad) <= known.get(fault.number, [0, 0])[decide is greedy], bad
