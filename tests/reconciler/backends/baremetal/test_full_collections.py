"""Full collections of garbage come when they are due, and not by themselves."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from reconciler.backends.baremetal import full_collections


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def full() -> int:
    return int(gc.get_stats()[2]["collections"])


def test_none_comes_by_itself() -> None:
    full_collections.only_when_asked()
    before, kept = full(), list[list[object]]()
    for _ in range(300_000):
        kept.append([kept])
    assert full() == before


def test_one_comes_when_it_is_due() -> None:
    full_collections.only_when_asked()
    before = full()
    full_collections.after(0)
    full_collections.after(full_collections.EVERY_S - 1)
    assert full() == before
    full_collections.after(2 * full_collections.EVERY_S)
    assert full() == before + 1
