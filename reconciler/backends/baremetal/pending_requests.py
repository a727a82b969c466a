"""What waits for the answer of an agent, by the number of the question."""

from __future__ import annotations

from collections.abc import Callable

from reconciler.backends.baremetal.wire import Answer
from solver.model.cluster import NodeName

Hear = Callable[[Answer | None], None]
"""Called with an answer; with None once there can't be any."""


class PendingRequests:
    """Used in the door's thread alone."""

    def __init__(self) -> None:
        self._hearing: dict[NodeName, dict[int, Hear]] = {}

    def add(self, node: NodeName, number: int, hear: Hear) -> None:
        """From now on what the node says under this number is heard."""
        self._hearing.setdefault(node, {})[number] = hear

    def drop(self, node: NodeName, number: int) -> None:
        """That is not waited for any more."""
        self._hearing.get(node, {}).pop(number, None)

    def answer(self, node: NodeName, answer: Answer) -> None:
        """A node has answered; it may not be waited for any more, and answers to another node's question are dropped."""
        hear = self._hearing.get(node, {}).get(answer.id)
        if hear is not None:
            hear(answer)

    def gone(self, node: NodeName) -> None:
        """Its agent has gone."""
        for hear in self._hearing.pop(node, {}).values():
            hear(None)
