"""The tree pool > block > rack > island > node, checked once and flattened into arrays for the round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import networkx as nx
import numpy as np
import numpy.typing as npt

from solver.world.cluster import LEVELS, Level, Node

Ints = npt.NDArray[np.int64]


class NotATreeError(ValueError):
    """A domain lies in two wider ones, so "in one rack" would mean two things."""


@dataclass(frozen=True, slots=True)
class Domains:
    """The domains of one level: their names, sorted, and for each node the index of its domain."""

    names: tuple[str, ...]
    of_node: Ints


Topology = dict[Level, Domains]


def topology_of(nodes: Sequence[Node]) -> Topology:
    """Index the domains of every level over `nodes`; raises NotATreeError."""
    return _topology(tuple(tuple(node.domain(level) for level in LEVELS) for node in nodes))


@lru_cache(maxsize=4)
def _topology(paths: tuple[tuple[str, ...], ...]) -> Topology:
    # Rounds follow each other on the same cluster: the tree is checked when it changes, not every round.
    _refuse_two_parents(paths)
    return {level: _domains([path[depth] for path in paths]) for depth, level in enumerate(LEVELS)}


def _domains(names: list[str]) -> Domains:
    ordered = tuple(sorted(set(names)))
    index = {name: number for number, name in enumerate(ordered)}
    return Domains(ordered, np.array([index[name] for name in names], dtype=np.int64))


def _refuse_two_parents(paths: tuple[tuple[str, ...], ...]) -> None:
    tree: nx.DiGraph[tuple[str, str]] = nx.DiGraph()
    for path in set(paths):
        nx.add_path(tree, reversed(list(zip(LEVELS, path, strict=True))))
    for domain, parents in tree.in_degree():
        if parents > 1:
            level, name = domain
            wider = " and ".join(sorted(f"{kind} {parent}" for kind, parent in tree.predecessors(domain)))
            raise NotATreeError(f"{level} {name} lies in {wider}; give each {level} one place in the topology")
