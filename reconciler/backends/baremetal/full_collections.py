"""Full collections of garbage, seldom: each looks at every object, 1.2 s with 12,500 connections, and no agent is heard then."""

from __future__ import annotations

import gc
from typing import Final

EVERY_S: Final = 600.0
"""What only a full collection finds, cycles that have lived for a while, waits for so long."""

_NEVER_BY_ITSELF: Final = 1_000_000_000


def only_when_asked() -> None:
    """Python begins none of its own accord; the younger generations are collected as ever. `gc.collect` is the one to ask."""
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, _NEVER_BY_ITSELF)


def after(listened_s: float) -> None:
    """Ask, where it is time again: counted from when listening began, in whole seconds."""
    if listened_s and listened_s % EVERY_S == 0:
        gc.collect()
