"""Collections of young garbage, seldomer: what a request makes is gone by itself once it is answered, and looked at in vain."""

from __future__ import annotations

import gc
from typing import Final

YOUNG_MAX: Final = 10_000
"""More objects than before, not 700 as Python has it: an eighth of what binding a gang of 8 cost this process was collecting."""


def seldom() -> None:
    """For this process. Cycles among so many objects, some megabytes, are kept for a little longer."""
    _, *older = gc.get_threshold()
    gc.set_threshold(YOUNG_MAX, *older)
