"""The arrays of the core, by what they hold."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
"""By node, holder or whatever is numbered: whether it is one of those that are meant."""
