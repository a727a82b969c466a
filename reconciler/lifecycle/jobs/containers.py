"""Keeps jobs that run in containers on nodes that can run those: as a set of nodes, which rounds know. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from reconciler.model.facts import NodeFacts
from solver.model.cluster import Node, NodeName
from solver.model.node_sets import NodeSet
from solver.model.workload import JobSpec

WITH_CONTAINERS: Final = "with-containers"


def container_nodes(nodes: Iterable[Node], facts: Mapping[NodeName, NodeFacts]) -> tuple[NodeSet, ...]:
    """The nodes for such jobs; no set where no node has said that it runs none, since then there is nothing to keep them to.

    A node that says nothing, or has not been heard of, may run them.
    """
    names = tuple(node.name for node in nodes)
    able = tuple(name for name in names if name not in facts or facts[name].containers is not False)
    return () if len(able) == len(names) else (NodeSet(WITH_CONTAINERS, able),)


def kept_to_containers(spec: JobSpec, node_sets: Iterable[NodeSet]) -> JobSpec:
    """The spec as rounds read it: the groups of a job in containers go where those run."""
    if spec.container is None or all(known.name != WITH_CONTAINERS for known in node_sets):
        return spec
    groups = tuple(msgspec.structs.replace(group, nodes=WITH_CONTAINERS) for group in spec.task_groups)
    return msgspec.structs.replace(spec, task_groups=groups)
