"""The tree pool > block > rack > island > node, checked once and flattened into arrays for the round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import networkx as nx
import numpy as np
import numpy.typing as npt

from solver.world.cluster import LEVELS, Level, Links, Node

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Path = tuple[str, ...]


class NotATreeError(ValueError):
    """A domain lies in two wider ones, so "in one rack" would mean two things."""


@dataclass(frozen=True, slots=True)
class Domains:
    """The domains of one level: their names, sorted, for each node the index of its domain, and for each domain its links.

    `bandwidth`: GB/s that each GPU of a domain has, at worst, towards the others of it.
    """

    names: tuple[str, ...]
    of_node: Ints
    bandwidth: Floats


Topology = dict[Level, Domains]


def topology_of(nodes: Sequence[Node]) -> Topology:
    """Index the domains of every level over `nodes`; raises NotATreeError."""
    paths = tuple(tuple(node.domain(level) for level in LEVELS) for node in nodes)
    return _topology(paths, tuple(node.links for node in nodes))


@lru_cache(maxsize=4)
def _topology(paths: tuple[Path, ...], links: tuple[Links, ...]) -> Topology:
    # Rounds follow each other on the same cluster: the tree is checked when it changes, not every round.
    _refuse_two_parents(paths)
    return {
        level: _domains([path[depth] for path in paths], [known.at(level) for known in links])
        for depth, level in enumerate(LEVELS)
    }


def _domains(names: list[str], bandwidths: list[float]) -> Domains:
    ordered = tuple(sorted(set(names)))
    index = {name: number for number, name in enumerate(ordered)}
    of_node = np.array([index[name] for name in names], dtype=np.int64)
    slowest = np.full(len(ordered), np.inf)
    np.minimum.at(slowest, of_node, np.array(bandwidths, dtype=np.float64))
    return Domains(ordered, of_node, slowest)


def _refuse_two_parents(paths: tuple[Path, ...]) -> None:
    tree: nx.DiGraph[tuple[str, str]] = nx.DiGraph()
    for path in set(paths):
        nx.add_path(tree, reversed(list(zip(LEVELS, path, strict=True))))
    for domain, parents in tree.in_degree():
        if parents > 1:
            level, name = domain
            wider = " and ".join(sorted(f"{kind} {parent}" for kind, parent in tree.predecessors(domain)))
            raise NotATreeError(f"{level} {name} lies in {wider}; give each {level} one place in the topology")
