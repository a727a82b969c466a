"""What a queue lets in: the classes and namespaces that it takes, whether it is on hold, and which jobs may borrow there."""

from __future__ import annotations

from solver.model.quantities import Duration, Instant
from solver.model.workload import Job, KubernetesNamespace, QueueName
from solver.policy.namespace_rules import NamespaceBar
from solver.policy.policy import Policy, Queue
from solver.policy.tree import QueueTree

DOUBLINGS_MAX = 30
"""More would not fit a time."""

BACK_OFF_MAX = Duration(3_600_000)
"""A job that was evicted often borrows again after this, if the policy's `backOff` itself is not longer. Kueue puts jobs back in
line after as long at most (`backoffMaxSeconds`)."""


def on_hold(tree: QueueTree, name: QueueName) -> tuple[Queue, ...]:
    """The queues on a path that start no jobs, from the queue up."""
    return tuple(queue for queue in _path(tree, name) if queue.stop_policy != "None")


def draining(tree: QueueTree, name: QueueName) -> Queue | None:
    """The queue on a path that drains, if there is one; the nearest."""
    return next((queue for queue in _path(tree, name) if queue.stop_policy == "HoldAndDrain"), None)


def closed_to(tree: QueueTree, name: QueueName, priority_class: str) -> tuple[Queue, ...]:
    """The queues on a path that do not take jobs of a class, from the queue up; "" is a job without a class."""
    return tuple(
        queue
        for queue in _path(tree, name)
        if queue.priority_classes is not None and priority_class not in queue.priority_classes
    )


def open_to(tree: QueueTree, namespace: KubernetesNamespace) -> tuple[QueueName, ...]:
    """The leaves that a namespace may use for one class at least, sorted."""
    leaves = (name for name in sorted(tree.by_name) if tree.is_leaf(name))
    bars = {name: tree.namespaces.bar(_path(tree, name), namespace, "") for name in leaves}
    return tuple(name for name, bar in bars.items() if bar is None or bar.kind == "class")


def barred(
    tree: QueueTree, name: QueueName, namespace: KubernetesNamespace, priority_class: str
) -> NamespaceBar | None:
    """Why jobs of a namespace and class may not be in a queue; None: they may, or they are in no namespace."""
    return tree.namespaces.bar(_path(tree, name), namespace, priority_class) if namespace.name else None


def lets_in(tree: QueueTree, name: QueueName, priority_class: str, namespace: KubernetesNamespace) -> bool:
    """Whether a queue starts jobs of a class and namespace (without a name: none) at all."""
    is_open = tree.is_leaf(name) and not on_hold(tree, name) and not closed_to(tree, name, priority_class)
    return is_open and barred(tree, name, namespace, priority_class) is None


def may_borrow(job: Job, policy: Policy, now: Instant) -> bool:
    """Whether a job may start outside guarantees: its class lets it, and it was not evicted a moment ago."""
    known = policy.priority_class(job)
    by_class = known is None or known.preemptible or known.may_borrow
    return by_class and back_off_ends(job, policy) <= now


def back_off_ends(job: Job, policy: Policy) -> Instant:
    """Until when a job that was evicted borrows nothing; each eviction doubles the time. The past for one that never was."""
    if not job.evicted_at:
        return job.submitted_at
    first, doublings = policy.scheduling.evictions.back_off, min(len(job.evicted_at) - 1, DOUBLINGS_MAX)
    return job.evicted_at[-1].after(min(first * 2**doublings, max(first, BACK_OFF_MAX)))


def _path(tree: QueueTree, name: QueueName) -> list[Queue]:
    return [tree.by_name[step] for step in tree.path(name)]
