"""What Git declares of nodes, joined with what the cluster says of them."""

from __future__ import annotations

import msgspec

from solver.model.cluster import Node


def joined(declared: Node | None, seen: Node) -> Node:
    """A node of the cluster with what Git declares of the node of that name; None: Git does not know it.

    Git goes before labels in what a node is for: its pool, its domains (all of them, if it declares any), links and data, and that
    it is closed. What there is only the cluster knows: whether it is ready, its GPUs, its CPU and memory, of which jobs may use no
    more than Git says. A node that only Git knows is not there, so nobody asks about it.
    """
    if declared is None:
        return seen
    lies = declared if declared.island or declared.rack or declared.block else seen
    return msgspec.structs.replace(
        seen,
        pool=declared.pool,
        island=lies.island,
        rack=lies.rack,
        block=lies.block,
        links=declared.links,
        data=declared.data,
        cordoned=seen.cordoned or declared.cordoned,
        ready=seen.ready and declared.ready,
        cpu=min(seen.cpu, declared.cpu),
        memory=min(seen.memory, declared.memory),
    )
