"""Queues as people find them: by their path in the tree. A review names them by name alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reconciler.documents.repository import Compiled
from solver.policy.tree import QueueTree


@dataclass(frozen=True)
class Paths:
    """Of each queue the names from its root down to itself."""

    names: Mapping[str, tuple[str, ...]]

    def path(self, queue: str) -> str:
        """`research/vision`; just its name where its tree is not known."""
        return "/".join(self._names(queue))

    def is_above(self, document: str, queue: str) -> bool:
        """Whether the document is the queue, or one above it."""
        return document in {f"Queue {name}" for name in self._names(queue)}

    def _names(self, queue: str) -> tuple[str, ...]:
        return self.names.get(queue, (queue,))


UNKNOWN = Paths({})


def paths_of(base: Compiled, head: Compiled) -> Paths:
    """By the head; by the base where a queue is gone."""
    names: dict[str, tuple[str, ...]] = {}
    for side in (base, head):
        tree = QueueTree.of(side.policy)
        names |= {queue.name: tuple(reversed(tree.path(queue.name))) for queue in side.policy.queues}
    return Paths(names)
