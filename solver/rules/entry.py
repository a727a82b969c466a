"""What a queue lets in: the classes that it takes, and whether it is on hold."""

from __future__ import annotations

from solver.rules.policy import Queue
from solver.rules.tree import QueueTree
from solver.world.workload import QueueName


def on_hold(tree: QueueTree, name: QueueName) -> tuple[Queue, ...]:
    """The queues on a path that start no jobs, from the queue up."""
    return tuple(queue for queue in _path(tree, name) if queue.stop_policy == "Hold")


def closed_to(tree: QueueTree, name: QueueName, priority_class: str) -> tuple[Queue, ...]:
    """The queues on a path that do not take jobs of a class, from the queue up; "" is a job without a class."""
    return tuple(
        queue
        for queue in _path(tree, name)
        if queue.priority_classes is not None and priority_class not in queue.priority_classes
    )


def _path(tree: QueueTree, name: QueueName) -> list[Queue]:
    return [tree.by_name[step] for step in tree.path(name)]
