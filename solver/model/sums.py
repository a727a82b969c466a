"""Runs of neighbours in an array that are alike, and sums along them."""

from __future__ import annotations

import numpy as np

from solver.model.arrays import Ints, Mask


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
