"""How many examples a property draws: all that it asks for in `make test-long`, a part of them otherwise."""

from __future__ import annotations

from typing import Any

from hypothesis import settings

FEWER = 5
"""By what the numbers are divided where a quick answer is wanted."""


class Drawing:
    """`everything`: properties that are defined from here on draw as many as they ask for."""

    everything = False


DRAWING = Drawing()


def worlds(count: int, **more: Any) -> settings:
    """Settings of a property over so many worlds; no limit of time, since a slow machine is no failure."""
    return settings(max_examples=count if DRAWING.everything else max(count // FEWER, 5), deadline=None, **more)


def counted(count: int) -> int:
    """How many worlds a test compares that says in how many of them a round is the best: all, or a quarter of them."""
    return count if DRAWING.everything else max(count // 4, 30)
