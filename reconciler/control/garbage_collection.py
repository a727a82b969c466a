"""Collections of young garbage, seldomer: what requests and rounds make is gone by itself afterwards, and looked at in vain."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

YOUNG_MAX: Final = 10_000
"""More objects than before, not 700 as Python has it: an eighth of what binding a gang of 8 on Kubernetes costs was collecting, and
a ninth of a later round of 100,000 GPUs."""


def seldom() -> None:
    """For this process. Cycles among so many objects, some megabytes, are kept for a little longer."""
    _, *older = gc.get_threshold()
    gc.set_threshold(YOUNG_MAX, *older)


@contextmanager
def filling() -> Iterator[None]:
    """While much is made that stays: it is looked at neither meanwhile nor later, a sixth of a start with 100,000 pods."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_on:
            gc.enable()
