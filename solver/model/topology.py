"""The tree pool > block > rack > island > node, checked once and flattened into arrays for the round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from solver.model.arrays import Floats, Ints
from solver.model.cluster import LEVELS, Level, Links, Node

Path = tuple[str, ...]


class NotATreeError(ValueError):
    """A domain lies in two wider ones, so "in one rack" would mean two things."""


@dataclass(frozen=True, slots=True)
class Domains:
    """The domains of one level: their names, in the order of their first nodes, for each node the index of its domain, and for
    each domain its links.

    `bandwidth`: GB/s that each GPU of a domain has, at worst, towards the others of it. `by_domain`: the nodes, those of the
    first domain first, those of the second from `begins[1]` on. `first`: the first node of each domain.
    """

    names: tuple[str, ...]
    of_node: Ints
    bandwidth: Floats
    by_domain: Ints
    begins: Ints
    first: Ints

    def nodes_of(self, domain: int) -> Ints:
        """The nodes of a domain, in their order."""
        return self.by_domain[self.begins[domain] : self.begins[domain + 1]]

    def around(self, nodes: Sequence[int]) -> npt.NDArray[np.bool_]:
        """Which nodes are in one domain with one of these."""
        mine = np.zeros(len(self.names), dtype=bool)
        mine[self.of_node[nodes]] = True
        return np.asarray(mine[self.of_node])


Topology = dict[Level, Domains]


def topology_of(nodes: Sequence[Node]) -> Topology:
    """Index the domains of every level over `nodes`; raises NotATreeError."""
    paths = tuple(node.path for node in nodes)
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
    ordered = tuple(dict.fromkeys(names))
    index = {name: number for number, name in enumerate(ordered)}
    of_node = np.array([index[name] for name in names], dtype=np.int64)
    slowest = np.full(len(ordered), np.inf)
    np.minimum.at(slowest, of_node, np.array(bandwidths, dtype=np.float64))
    begins = np.concatenate(([0], np.cumsum(np.bincount(of_node, minlength=len(ordered)))))
    by_domain = np.argsort(of_node, kind="stable")
    return Domains(ordered, of_node, slowest, by_domain, begins, by_domain[begins[:-1]])


def _refuse_two_parents(paths: tuple[Path, ...]) -> None:
    found = {(level, *link) for path in set(paths) for level, link in zip(LEVELS, pairwise(path), strict=False)}
    parents = Counter((level, name) for level, name, _ in found)
    for (level, name), count in parents.items():
        if count > 1:
            kind = LEVELS[LEVELS.index(level) + 1]
            wider = " and ".join(
                sorted(f"{kind} {parent}" for at, child, parent in found if (at, child) == (level, name))
            )
            raise NotATreeError(f"{level} {name} lies in {wider}; give each {level} one place in the topology")
