"""The arrays of the core, by what they hold; and sums along runs of neighbours that are alike."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int32]
"""Small numbers, of which so many arrays are kept that the room they take matters."""

Mask = npt.NDArray[np.bool_]
"""By node, holder or whatever is numbered: whether it is one of those that are meant."""


def begins(*keys: Ints) -> Mask:
    """Where another run begins of rows that are alike in all of these."""
    first: Mask = np.ones(len(keys[0]), dtype=bool)
    first[1:] = np.logical_or.reduce([key[1:] != key[:-1] for key in keys])
    return first


def running_sums(first: Mask, more: Ints) -> Ints:
    """Sums of what comes so far, begun anew at each `first`."""
    total = np.cumsum(more)
    before = (total - more)[first]
    return total - np.repeat(before, np.diff(np.append(np.flatnonzero(first), len(more))))
