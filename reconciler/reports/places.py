"""Where documents stand: queues in their tree, documents in their files. A review names both by name alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from reconciler.documents.problem import START, Place
from reconciler.documents.repository import Compiled
from solver.rules.policy import Policy
from solver.rules.tree import QueueTree
from solver.world.workload import QueueName


@dataclass(frozen=True)
class Places:
    """`paths`: of each queue the names from its root down. `origins`: `file:line` of each document, as `Kind name`."""

    paths: Mapping[str, tuple[str, ...]]
    origins: Mapping[str, str]

    def path(self, queue: str) -> str:
        """`research/vision`; just its name where nobody knows its tree."""
        return "/".join(self.paths.get(queue, (queue,)))

    def is_under(self, queue: str, document: str) -> bool:
        """Whether the document is the queue or one above it."""
        return document in {f"Queue {name}" for name in self.paths.get(queue, (queue,))}

    def origin(self, document: str) -> str:
        """Where the document stands; "" where nobody knows."""
        return self.origins.get(document, "")


NOWHERE = Places({}, {})


def places_of(base: Compiled, head: Compiled) -> Places:
    """By the head, and by the base what the head has not."""
    paths: dict[str, tuple[str, ...]] = {}
    origins: dict[str, str] = {}
    for side in (base, head):
        tree = QueueTree.of(side.policy)
        paths |= {queue.name: _downwards(tree, queue.name) for queue in side.policy.queues}
        origins |= dict(_origins(side.policy))
    return Places(paths, origins)


def placed(origin: str) -> tuple[str, Place]:
    """The file and place that `file:line` names; a file without a line is meant from its start."""
    file, colon, line = origin.rpartition(":")
    if colon and line.isdecimal():
        return file, Place(int(line), 1)
    return origin, START


def _downwards(tree: QueueTree, queue: QueueName) -> tuple[str, ...]:
    return tuple(reversed(tree.path(queue)))


def _origins(policy: Policy) -> Iterator[tuple[str, str]]:
    yield "SchedulingPolicy", policy.scheduling.origin
    for kind, documents in (
        ("Queue", policy.queues),
        ("PriorityClass", policy.priority_classes),
        ("SharingPolicy", policy.sharing),
        ("MigGeometry", policy.mig),
        ("Reservation", policy.reservations),
    ):
        for document in documents:
            yield f"{kind} {document.name}", document.origin
    for queue in policy.queues:
        for entry in queue.quota:
            yield f"Queue {queue.name} {entry.gpu_type}", entry.origin
