"""Which pools a job may be on, as its queue, the queues above it and its class say; and whether nodes with GPUs are open to it.

What a policy says of pools becomes a set of nodes that the job's task groups are limited to, as other limits of nodes are.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import is_
from typing import NamedTuple

import msgspec

from solver.model.cluster import Node
from solver.model.node_sets import NodeSet
from solver.model.quantities import Memory
from solver.model.snapshot import Snapshot
from solver.model.workload import Job, TaskGroup
from solver.policy.policy import Policy
from solver.policy.tree import QueueTree


class PoolLimit(NamedTuple):
    """The pools that a job may be on; None: any. `off_gpus`: not on nodes with GPUs.

    `gpu_memory`: what each GPU has at least; `labels`: all of which the node has.
    """

    pools: frozenset[str] | None
    off_gpus: bool
    gpu_memory: Memory | None = None
    labels: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What it is called in reasons."""
        words = []
        if self.pools is not None:
            words.append(f"pools {', '.join(sorted(self.pools))}" if self.pools else "no pool")
        words += ["nodes without GPUs"] if self.off_gpus else []
        words += [f"GPUs of at least {self.gpu_memory}"] if self.gpu_memory is not None else []
        words += [f"nodes with {', '.join(self.labels)}"] if self.labels else []
        return ", ".join(words) or "any"

    def allows(self, node: Node) -> bool:
        """Whether the job may be there."""
        if self.gpu_memory is not None and not (node.gpus and all(gpu.memory >= self.gpu_memory for gpu in node.gpus)):
            return False
        if not set(self.labels).issubset(node.labels):
            return False
        return (self.pools is None or node.pool in self.pools) and not (self.off_gpus and node.gpus)


NO_LIMIT = PoolLimit(None, off_gpus=False)


def pool_limit(job: Job, policy: Policy, tree: QueueTree) -> PoolLimit:
    """What a policy says of a job: all lists on its queue's path and that of its class hold."""
    known = policy.priority_class(job)
    said = [tree.by_name[queue].pools for queue in tree.path(job.spec.queue)]
    said += [known.pools] if known else []
    lists = [frozenset(pools) for pools in said if pools is not None]
    off_gpus = policy.scheduling.gpu_nodes_for == "gpu-jobs" and not any(
        group.shape.uses_gpus for group in job.spec.task_groups
    )
    return PoolLimit(frozenset.intersection(*lists) if lists else None, off_gpus)


class PoolLimits:
    """Limits jobs to the nodes that a policy opens to them, and that are as they ask for; it makes sets of nodes for that."""

    def __init__(self, policy: Policy, nodes: Iterable[Node], node_sets: Iterable[NodeSet] = ()) -> None:
        self._policy, self._nodes, self._tree = policy, tuple(nodes), QueueTree.of(policy)
        self._given = {known.name: known for known in node_sets}
        self._made = dict[str, NodeSet]()
        self._says_anything = (
            policy.scheduling.gpu_nodes_for != "all-jobs"
            or any(queue.pools is not None for queue in policy.queues)
            or any(known.pools is not None for known in policy.priority_classes)
        )

    @property
    def node_sets(self) -> tuple[NodeSet, ...]:
        """Those that were there, and those that were made for jobs so far, by name."""
        return tuple(sorted((*self._given.values(), *self._made.values()), key=lambda known: known.name))

    def limited(self, job: Job) -> Job:
        """The job on the nodes that are open to it; the very same where all are."""
        if not self._says_anything and not _asks_of_nodes(job):
            return job
        limit = pool_limit(job, self._policy, self._tree)
        if limit == NO_LIMIT and not _asks_of_nodes(job):
            return job
        groups = tuple(self._limited(group, limit) for group in job.spec.task_groups)
        return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, task_groups=groups))

    def _limited(self, group: TaskGroup, limit: PoolLimit) -> TaskGroup:
        """The group on the nodes of its own set that the limit allows."""
        labels = tuple(sorted(set(group.shape.node_labels)))
        limit = limit._replace(gpu_memory=group.shape.min_gpu_memory, labels=labels)
        if limit == NO_LIMIT:
            return group
        name = f"{group.nodes}, {limit.name}" if group.nodes else limit.name
        if name not in self._made:
            mine = set(self._given[group.nodes].nodes) if group.nodes else None
            there = (node.name for node in self._nodes if mine is None or node.name in mine if limit.allows(node))
            self._made[name] = NodeSet(name, tuple(sorted(there)))
        return msgspec.structs.replace(group, nodes=name)


def with_pool_limits(snapshot: Snapshot, policy: Policy) -> Snapshot:
    """The snapshot in which every job is limited to the nodes that are open to it; the very same where none is."""
    limits = PoolLimits(policy, snapshot.nodes, snapshot.node_sets)
    jobs = tuple(map(limits.limited, snapshot.jobs))
    if all(map(is_, jobs, snapshot.jobs)):
        return snapshot
    return msgspec.structs.replace(snapshot, jobs=jobs, node_sets=limits.node_sets)


def _asks_of_nodes(job: Job) -> bool:
    shapes = (group.shape for group in job.spec.task_groups)
    return any(shape.min_gpu_memory is not None or shape.node_labels for shape in shapes)
