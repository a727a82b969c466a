"""Sets of nodes that task groups may be limited to: what their owner says of nodes, settled before a round sees it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from itertools import pairwise

import msgspec

from solver.model.cluster import Node, NodeName
from solver.model.document import Document
from solver.model.workload import Job, JobSpec, TaskPlacement


class NodeSet(Document, frozen=True):
    """Some nodes under a name, sorted. It may have none: then nothing that is limited to it can run."""

    name: str
    nodes: tuple[NodeName, ...]


class NodeSetError(ValueError):
    """A set of nodes is not what it is taken for. `node_set`: which it is; of a group that names one, else `job` and `group`."""

    def __init__(self, problem: str, fix: str, *, node_set: str = "", job: str = "", group: str = "") -> None:
        super().__init__(f"{problem}; {fix}")
        self.problem, self.fix = problem, fix
        self.node_set, self.job, self.group = node_set, job, group


def settled_sets(node_sets: Iterable[NodeSet], nodes: Iterable[Node]) -> tuple[NodeSet, ...]:
    """By name, each with its nodes sorted.

    Raises NodeSetError where one has no name or a node that is not there, ValueError where something occurs twice.
    """
    known = tuple(node_sets)
    return _settled(known, frozenset(node.name for node in nodes)) if known else ()


@lru_cache(maxsize=4)
def _settled(node_sets: tuple[NodeSet, ...], there: frozenset[NodeName]) -> tuple[NodeSet, ...]:
    # A round makes several snapshots of one cluster: its sets are looked at once.
    ordered = tuple(
        msgspec.structs.replace(known, nodes=tuple(sorted(known.nodes)))
        for known in sorted(node_sets, key=lambda known: known.name)
    )
    refuse_repeats("set of nodes", [known.name for known in ordered])
    for known in ordered:
        if not known.name:
            raise NodeSetError("a set of nodes has no name", 'name it: "" means that any node will do')
        refuse_repeats("node", known.nodes, f"the set of nodes {known.name!r}")
        if not there.issuperset(known.nodes):
            strangers = ", ".join(sorted(set(known.nodes) - there)[:3])
            problem = f"the set of nodes {known.name!r} has {strangers}, which is no node of the snapshot"
            raise NodeSetError(problem, "leave it out", node_set=known.name)
    return ordered


def refuse_unknown_sets(jobs: Iterable[Job], node_sets: Iterable[NodeSet]) -> None:
    """Raise NodeSetError where a task group names a set that is not there."""
    names = {known.name for known in node_sets}
    for job in jobs:
        for group in job.spec.task_groups:
            if group.nodes and group.nodes not in names:
                problem = (
                    f"group {group.name} of job {job.name} may be on the nodes {group.nodes!r}, which are no set here"
                )
                raise NodeSetError(problem, "add it to nodeSets", job=job.name, group=group.name)


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
