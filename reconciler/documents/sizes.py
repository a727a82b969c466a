"""Sizes of memory that are written without a unit where one was meant: `memory: 256`, which is 256 bytes."""

from __future__ import annotations

from typing import Final, NamedTuple

from solver.model.quantities import Memory

_BARE_MAX: Final = 2**16
"""Bytes: smaller sizes are numbers whose unit was left out. No job runs in so little."""


class BareSize(NamedTuple):
    """What is wrong with a size, and the fix."""

    message: str
    fix: str


def bare_size(field: str, size: Memory | None) -> BareSize | None:
    """What is wrong with a size that lacks its unit; None: nothing."""
    if size is None or not 0 < size < _BARE_MAX:
        return None
    return BareSize(f"{field} is {int(size)} bytes", f"Write {int(size)}Gi, if GiB are meant.")
