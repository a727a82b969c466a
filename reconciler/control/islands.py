"""Islands that nodes tell themselves, by the NVLink clique of their GPUs: where Git declares none they count. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from reconciler.model.facts import NodeFacts
from solver.model.cluster import Node, NodeName

Group = tuple[str, str]
"""A pool, and the name of an island or clique in it."""


def reported_cliques(facts: Mapping[NodeName, NodeFacts]) -> dict[NodeName, str]:
    """The clique of each node that tells of any: "" where its GPUs are in none beyond their machine, or not all in one."""
    told: dict[NodeName, str] = {}
    for name, known in facts.items():
        cliques = {gpu.clique for gpu in known.gpus if gpu.clique is not None}
        if cliques:
            told[name] = cliques.pop() if len(cliques) == 1 else ""
    return told


def with_reported_islands(nodes: Iterable[Node], cliques: Mapping[NodeName, str]) -> tuple[Node, ...]:
    """Nodes without a declared island are in that of their clique, which is also a rack where none is declared.

    Not if it would then lie in two racks or blocks: a round must not fail over what one node tells.
    """
    found = tuple(nodes)
    joined = {
        node.name: _joined(node, cliques[node.name]) for node in found if not node.island and cliques.get(node.name)
    }
    if not joined:
        return found
    places: defaultdict[Group, set[Group]] = defaultdict(set)
    for node in found:
        known = joined.get(node.name, node)
        places[known.pool, known.island].add((known.rack, known.block))
    return tuple(
        joined[node.name] if node.name in joined and len(places[node.pool, joined[node.name].island]) == 1 else node
        for node in found
    )


def contradictions(nodes: Iterable[Node], cliques: Mapping[NodeName, str]) -> dict[NodeName, str]:
    """Of each node whose NVLinks join it to others than its island does, and to which. Nodes that tell nothing don't count."""
    by_island: defaultdict[Group, list[NodeName]] = defaultdict(list)
    by_clique: defaultdict[Group, list[NodeName]] = defaultdict(list)
    telling = [node for node in nodes if node.name in cliques]
    for node in telling:
        by_island[node.pool, node.island or node.name].append(node.name)
        by_clique[node.pool, cliques[node.name] or node.name].append(node.name)
    return {
        node.name: f"NVLink joins it to {_others(linked, node)}, its island to {_others(declared, node)}"
        for node in telling
        if (linked := by_clique[node.pool, cliques[node.name] or node.name])
        != (declared := by_island[node.pool, node.island or node.name])
    }


def _joined(node: Node, clique: str) -> Node:
    return msgspec.structs.replace(node, island=clique, rack=node.rack or clique)


def _others(names: Iterable[NodeName], node: Node) -> str:
    return ", ".join(name for name in names if name != node.name) or "no other node"
