"""How many examples a property draws: all that it asks for in `make test-long`, a part of them otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet
from hypothesis import settings

FEWER = 8
"""By what the numbers are divided where a quick answer is wanted."""
FEWER_COUNTED = 5
"""The same of worlds that are counted: of still fewer the shares that are asked for would be chance."""


class Drawing:
    """`everything`: properties that are defined from here on draw as many as they ask for."""

    everything = False


DRAWING = Drawing()


def worlds(count: int, **more: Any) -> settings:
    """Settings of a property over so many worlds; no limit of time, since a slow machine is no failure."""
    return settings(max_examples=count if DRAWING.everything else max(count // FEWER, 5), deadline=None, **more)


def counted(count: int) -> int:
    """How many worlds a test compares that says in how many of them a round is the best: all, or a fifth of them."""
    return count if DRAWING.everything else max(count // FEWER_COUNTED, 30)


def first(few: int, cases: Sequence[object]) -> list[ParameterSet]:
    """Cases of a test: so many are tried by `make test`, the others where there is time."""
    return [pytest.param(case, marks=[pytest.mark.thorough] if at >= few else []) for at, case in enumerate(cases)]


def parted(few: int, count: int) -> list[ParameterSet]:
    """Numbers of worlds as cases of a test: the first of them together, which `make test` tries, and the others together."""
    return [
        pytest.param(range(few), id=f"{few}"),
        pytest.param(range(few, count), marks=pytest.mark.thorough, id=f"{few}-{count}"),
    ]
