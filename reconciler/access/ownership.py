"""The owners of each file of a repository: the admins of the place in the tree from which it takes.

A queue's quota, weight and access stand in the queue's own file, and what it is guaranteed is taken from its parent. So its file
is its parent's admins' to change, and theirs above; the queue's own admins change the files of the queues below it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from reconciler.access.policy import ANYBODY, AccessPolicy
from solver.model.workload import QueueName
from solver.policy.policy import Policy

Subjects = frozenset[str]


def admins_everywhere(access: AccessPolicy | None) -> Subjects:
    """Admins in all queues: they own all other files."""
    bindings = (binding for binding in (access.roles if access else ()) if binding.role == "admin")
    return _named(subject for binding in bindings if binding.queues is None for subject in binding.subjects)


def queue_files(policy: Policy, access: AccessPolicy | None) -> dict[str, Subjects]:
    """The file of every queue, and its owners beside those that are admin everywhere."""
    inside = {queue.name: _named(queue.access.admins) for queue in policy.queues}
    for binding in access.roles if access else ():
        for name in binding.queues or () if binding.role == "admin" else ():
            inside[name] = inside.get(name, frozenset()) | _named(binding.subjects)
    parents = {queue.name: queue.parent for queue in policy.queues}
    return {
        file_of(queue.origin): frozenset().union(*(inside[above] for above in _above(queue.name, parents)))
        for queue in policy.queues
    }


def file_of(origin: str) -> str:
    """The file of a `file:line`."""
    return origin.rpartition(":")[0]


def _above(name: QueueName, parents: Mapping[QueueName, QueueName | None]) -> Iterator[QueueName]:
    """The queues above a queue of a valid tree, the nearest first."""
    parent = parents[name]
    while parent is not None:
        yield parent
        parent = parents[parent]


def _named(subjects: Iterable[str]) -> Subjects:
    """Without `group:*`: hosts of repositories don't know all users."""
    return frozenset(subjects) - {ANYBODY}
