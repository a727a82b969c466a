"""Which nodes of a room changed, in order, so that whatever is kept of the room looks again at those alone."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple


class Mark(NamedTuple):
    """How far a reader has read: so many changes, when so often something had been undone."""

    read: int
    undone: int


NOTHING_READ = Mark(0, 0)


@dataclass(slots=True)
class ChangeLog:
    """Changes of one room. What was tried and undone is not among them; `undone`: how often that happened.

    `gained`: how many there were when a node last may have got anything back. Since then all have only become less.
    """

    nodes: list[int] = field(default_factory=list)
    undone: int = 0
    gained: int = 0

    @property
    def mark(self) -> Mark:
        """All of them are known."""
        return Mark(len(self.nodes), self.undone)

    def since(self, mark: Mark) -> Collection[int] | None:
        """The nodes that changed after a mark, each once; None where that can't be told, as something was undone since."""
        return set(self.nodes[mark.read :]) if mark.undone == self.undone else None

    def gain(self) -> None:
        """The last change may have given something back."""
        self.gained = len(self.nodes)

    def begin(self) -> None:
        """All of them are known to all who read them."""
        self.nodes.clear()
        self.gained = 0
        self.undone += 1

    def back_to(self, count: int) -> Collection[int]:
        """All but the first so many have been undone: of which nodes."""
        undone = set(self.nodes[count:])
        if undone:
            del self.nodes[count:]
            self.undone += 1
        return undone
