"""The search for the fewest nodes: whatever the answer is, it is found, and one less was tried and misses."""

from __future__ import annotations

import pytest

from reconciler.analysis.backtest.figures import Figure
from reconciler.analysis.capacity.search import SmallestNumber
from reconciler.analysis.capacity.target import JudgedWait

MOST = 64


def searched(needed: int, tried: dict[int, JudgedWait] | None = None) -> dict[int, JudgedWait]:
    tried = {} if tried is None else tried
    search = SmallestNumber(tried, MOST)
    while (number := search.next) is not None:
        assert number not in tried, "nothing is tried twice"
        tried[number] = JudgedWait(Figure(float(needed - number)), number >= needed)
    return tried


@pytest.mark.parametrize("needed", range(MOST + 2))
def test_the_fewest_nodes_are_found_and_one_less_was_tried(needed: int) -> None:
    tried = searched(needed)
    found = SmallestNumber(tried, MOST)
    assert found.met == (needed if needed <= MOST else None)
    assert found.missed == (None if needed == 0 else needed - 1 if needed <= MOST else MOST)
    assert len(tried) <= 2 + 2 * MOST.bit_length()


@pytest.mark.parametrize("after", range(1, 10))
def test_an_interrupted_search_goes_on_to_the_same_answer(after: int) -> None:
    whole = searched(37)
    begun = dict(list(whole.items())[:after])
    assert searched(37, begun) == whole
