"""How often young garbage is collected in a control plane."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from reconciler.control.garbage_collection import YOUNG_MAX, seldom


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[tuple[int, int, int]]:
    """As they were, and are again afterwards."""
    before = gc.get_threshold()
    yield before
    gc.set_threshold(*before)


def test_young_garbage_waits_until_there_is_much_and_older_is_collected_as_ever(
    thresholds: tuple[int, int, int],
) -> None:
    seldom()
    assert gc.get_threshold() == (YOUNG_MAX, *thresholds[1:])
    gc.collect()
    before = gc.get_stats()[0]["collections"]
    made = [[number] for number in range(YOUNG_MAX // 2)]
    assert gc.get_stats()[0]["collections"] == before
    made += [[number] for number in range(YOUNG_MAX)]
    assert gc.get_stats()[0]["collections"] > before
