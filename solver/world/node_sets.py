"""Sets of nodes that task groups may be limited to: what their owner says of nodes, settled before a round sees it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise

import msgspec

from solver.world.cluster import Node, NodeName
from solver.world.document import Document
from solver.world.workload import Job, JobSpec, TaskPlacement


class NodeSet(Document, frozen=True):
    """Some nodes under a name, sorted. It may have none: then nothing that is limited to it can run."""

    name: str
    nodes: tuple[NodeName, ...]


def sorted_sets(node_sets: Iterable[NodeSet]) -> tuple[NodeSet, ...]:
    """By name, each with its nodes sorted; raises ValueError where one has no name, or something occurs twice."""
    ordered = tuple(
        msgspec.structs.replace(known, nodes=tuple(sorted(known.nodes)))
        for known in sorted(node_sets, key=lambda known: known.name)
    )
    refuse_repeats("set of nodes", [known.name for known in ordered])
    for known in ordered:
        if not known.name:
            raise ValueError('a set of nodes has no name; "" means that any node will do')
        refuse_repeats("node", known.nodes, f"the set of nodes {known.name!r}")
    return ordered


def refuse_unknown_sets(node_sets: Sequence[NodeSet], nodes: Iterable[Node], jobs: Iterable[Job]) -> None:
    """Raise ValueError where a set has a node that is not there, or a task group names a set that is not there."""
    there = {node.name for node in nodes} if node_sets else set()
    for known in node_sets:
        if not there.issuperset(known.nodes):
            strangers = ", ".join(sorted(set(known.nodes) - there)[:3])
            raise ValueError(
                f"the set of nodes {known.name!r} has {strangers}, which is no node of the snapshot; leave it out"
            )
    names = {known.name for known in node_sets}
    for job in jobs:
        for group in job.spec.task_groups:
            if group.nodes and group.nodes not in names:
                problem = f"group {group.name} of job {job.name} may be on the set of nodes {group.nodes!r}"
                raise ValueError(f"{problem}, which is not in nodeSets; add it there")


def narrowed(node_sets: Iterable[NodeSet], nodes: Collection[NodeName]) -> tuple[NodeSet, ...]:
    """The sets without nodes that are not there any more."""
    return tuple(
        msgspec.structs.replace(known, nodes=tuple(name for name in known.nodes if name in nodes))
        for known in node_sets
    )


def outside(spec: JobSpec, tasks: Iterable[TaskPlacement], node_sets: Iterable[NodeSet]) -> Iterator[TaskPlacement]:
    """The tasks of a job that are on nodes on which their group may not be, or not any more."""
    limited = {group.name: group.nodes for group in spec.task_groups if group.nodes}
    allowed = {known.name: set(known.nodes) for known in node_sets if known.name in limited.values()} if limited else {}
    return (task for task in tasks if task.group in limited and task.node not in allowed[limited[task.group]])


def refuse_repeats(what: str, names: Iterable[str], where: str = "the snapshot") -> None:
    """Raise ValueError where a name of a sorted row is that of the one before it."""
    for before, name in pairwise(names):
        if before == name:
            raise ValueError(f"{what} {name!r} occurs twice in {where}; every {what} has a name of its own")
