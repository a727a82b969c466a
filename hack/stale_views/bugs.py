"""Bugs that only an old view shows: a control plane that takes it for how things are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

from hack.crash.bugs import (
    devices_are_released_before_the_stop_is_confirmed,
    tasks_that_were_asked_to_leave_count_as_gone,
)
from hack.stale_views.run import run_seed

Patches = Iterable[Any]
BUGS: tuple[Callable[[], Patches], ...] = (
    devices_are_released_before_the_stop_is_confirmed,
    tasks_that_were_asked_to_leave_count_as_gone,
)
SEEDS_MAX = 60


def caught_by(bug: Callable[[], Patches], seeds: Iterable[int] = range(SEEDS_MAX)) -> tuple[int, str] | None:
    """The first seed that shows it, and how."""
    with ExitStack() as seeded:
        for patch in bug():
            seeded.enter_context(patch)
        for seed in seeds:
            found = run_seed(seed).violations
            if found:
                return seed, found[0]
    return None
