"""Nodes by their names, as the policy in force declares them."""

from __future__ import annotations

from collections.abc import Callable

from reconciler.control.control import NoPolicyError, PolicySource
from solver.model.cluster import Node, NodeName


def declared_nodes(policies: PolicySource) -> Callable[[NodeName], Node | None]:
    """What is asked for a node; it answers None where Git declares none of that name, or there is no policy."""
    known: dict[str, dict[NodeName, Node]] = {}

    def declared(name: NodeName) -> Node | None:
        try:
            current = policies.current()
        except NoPolicyError:
            return None
        nodes = known.get(current.revision)
        if nodes is None:
            nodes = {node.name: node for node in current.nodes}
            known.clear()
            known[current.revision] = nodes
        return nodes.get(name)

    return declared
