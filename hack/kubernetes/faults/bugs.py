"""Bugs seeded on purpose: a harness that finds nothing in a broken scheduler would prove nothing about a sound one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

Patches = Iterable[Any]
BUGS: dict[str, Callable[[], Patches]] = {}


@contextmanager
def seeded(bug: str) -> Iterator[None]:
    """The control plane has this bug while the context lasts; "": none. Raises KeyError."""
    with ExitStack() as patched:
        for patch in BUGS[bug]() if bug else ():
            patched.enter_context(patch)
        yield
