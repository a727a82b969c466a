"""Sets of nodes as arrays, for rooms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from solver.world.cluster import NodeName
from solver.world.node_sets import NodeSet

Mask = npt.NDArray[np.bool_]


def masks_of(node_sets: Iterable[NodeSet], index: Mapping[NodeName, int]) -> dict[str, Mask]:
    """By name, which of the nodes that `index` numbers are in each set."""
    masks: dict[str, Mask] = {}
    for known in node_sets:
        mask = masks[known.name] = np.zeros(len(index), dtype=bool)
        mask[[index[name] for name in known.nodes]] = True
    return masks
