"""Sets of nodes as arrays, for rooms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import numpy as np

from solver.model.arrays import Mask
from solver.model.cluster import Node, NodeName
from solver.model.node_sets import NodeSet


def masks_of(node_sets: Iterable[NodeSet], nodes: Sequence[Node]) -> Mapping[str, Mask]:
    """By name, which of the nodes are in each set."""
    known = tuple(node_sets)
    return _masks(known, tuple(node.name for node in nodes)) if known else {}


@lru_cache(maxsize=4)
def _masks(node_sets: tuple[NodeSet, ...], names: tuple[NodeName, ...]) -> Mapping[str, Mask]:
    # A round has several rooms of one cluster, all with the same sets.
    index = {name: number for number, name in enumerate(names)}
    masks: dict[str, Mask] = {}
    for known in node_sets:
        mask = masks[known.name] = np.zeros(len(names), dtype=bool)
        mask[[index[name] for name in known.nodes]] = True
    return masks
