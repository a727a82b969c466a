"""Sums over neighbours in an array."""

from __future__ import annotations

import numpy as np

from solver.world.arrays import Ints, Mask


def running_sums(first: Mask, more: Ints) -> Ints:
    """Sums of what comes so far, begun anew at each `first`."""
    total = np.cumsum(more)
    before = (total - more)[first]
    return total - np.repeat(before, np.diff(np.append(np.flatnonzero(first), len(more))))
