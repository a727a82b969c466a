"""The arrays of the core, by what they hold."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int32]
"""Small numbers, of which so many arrays are kept that the room they take matters."""

Mask = npt.NDArray[np.bool_]
"""By node, holder or whatever is numbered: whether it is one of those that are meant."""
