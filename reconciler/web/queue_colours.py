"""Which of the palette's colours a queue has, in every picture: that of the map."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from solver.model.workload import QueueName
from solver.policy.policy import Policy

COLOURS: Final = 8
"""In the style sheet, c0 and on."""
OTHER: Final = "other"


@dataclass(frozen=True, slots=True)
class QueueColours:
    """`named`: colours and the queues that they are for, as a legend says them; queues below one have its colour."""

    named: tuple[tuple[str, QueueName], ...]
    by_queue: Mapping[QueueName, str]

    @classmethod
    def of(cls, policy: Policy) -> Self:
        """Those of the deepest level for which there are enough, as `byQueue` of map.js has them."""
        parents = {queue.name: queue.parent for queue in policy.queues}
        paths = {name: _path(parents, name) for name in parents}
        of_depth = Counter(len(path) for path in paths.values())
        level = 1
        while 0 < of_depth[level + 1] <= COLOURS:
            level += 1
        at_level = [name for name, path in paths.items() if len(path) == level]
        named = {name: f"c{at}" for at, name in enumerate(at_level[:COLOURS])}
        by_queue = {
            name: named.get(path[level - 1], OTHER) if len(path) >= level else OTHER for name, path in paths.items()
        }
        return cls(tuple((colour, name) for name, colour in named.items()), by_queue)

    def of_queue(self, queue: QueueName) -> str:
        """Of one that is no more, too."""
        return self.by_queue.get(queue, OTHER)


def _path(parents: Mapping[QueueName, QueueName | None], name: QueueName) -> tuple[QueueName, ...]:
    """From the top down to it."""
    found = [name]
    while (above := parents[found[-1]]) is not None and above in parents:
        found.append(above)
    return tuple(reversed(found))
