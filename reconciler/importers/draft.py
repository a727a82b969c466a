"""Policy as an importer draws it up: queues with quota by resource, and other documents, each with the comments that it gets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final, Literal

HostResource = Literal["cpu", "memory"]
HOST_RESOURCES: Final[tuple[HostResource, ...]] = ("cpu", "memory")
"""What a quota may be about beside GPU types. Amounts are cores, and bytes."""


@dataclass
class QuotaDraft:
    """What a queue may hold of one GPU type (GPUs), of CPU (cores) or of memory (bytes). None: not stated.

    `extra`: what the queue is guaranteed beyond the sum of those below it, for sources that state only that; `guaranteed` follows
    from it. `borrowing`: what it may hold beyond its guarantee; `max` follows from it. `shared`: the queues below have what it is
    guaranteed in common.
    """

    guaranteed: Fraction | None = None
    lendable: Fraction | None = None
    max: Fraction | None = None
    per_user: Fraction | None = None
    extra: Fraction | None = None
    borrowing: Fraction | None = None
    shared: bool = False

    def add(self, other: QuotaDraft) -> None:
        """Join what a second entry says of the same resource: amounts add up, and no limit is none."""
        whole = other.guaranteed or Fraction(0)
        if self.lendable is not None or other.lendable is not None:
            mine = self.guaranteed or Fraction(0)
            first = mine if self.lendable is None else self.lendable
            self.lendable = first + (whole if other.lendable is None else other.lendable)
        self.guaranteed = (self.guaranteed or Fraction(0)) + whole
        self.max = None if self.max is None or other.max is None else self.max + other.max


@dataclass
class QueueDraft:
    """A Queue. `quota`: by GPU type, `cpu` and `memory`. `weight` may be any positive number. `comments`: lines above the document.

    `more`: further fields of its spec, as YAML has them.
    """

    name: str
    parent: str | None = None
    quota: dict[str, QuotaDraft] = field(default_factory=dict)
    weight: Fraction | None = None
    comments: list[str] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)

    def quota_for(self, resource: str) -> QuotaDraft:
        """The entry for a resource, made if there is none."""
        return self.quota.setdefault(resource, QuotaDraft())


@dataclass
class DocumentDraft:
    """Any other document, of a kind and name. `path`: the file that it goes to, with others of its kind."""

    kind: str
    name: str
    path: str
    spec: dict[str, Any]
    comments: list[str] = field(default_factory=list)


@dataclass
class PolicyDraft:
    """All documents of an import. `adjustments`: what was changed so that the tree can be kept, by queue."""

    queues: dict[str, QueueDraft] = field(default_factory=dict)
    documents: list[DocumentDraft] = field(default_factory=list)
    adjustments: list[tuple[str, str]] = field(default_factory=list)
    _below: dict[str | None, list[QueueDraft]] = field(default_factory=dict)

    def close(self) -> None:
        """No queue comes any more, or goes elsewhere: what lies below each is found at once from here on."""
        for queue in sorted(self.queues.values(), key=lambda each: each.name):
            self._below.setdefault(queue.parent, []).append(queue)

    def add(self, queue: QueueDraft) -> QueueDraft:
        """One more queue."""
        self.queues[queue.name] = queue
        return queue

    def children(self, parent: str | None) -> list[QueueDraft]:
        """The queues below one, by name; of None: the roots."""
        if self._below:
            return self._below.get(parent, [])
        return sorted((queue for queue in self.queues.values() if queue.parent == parent), key=lambda each: each.name)

    def gpu_types(self) -> list[str]:
        """Every GPU type that some queue has quota of, sorted."""
        named = {resource for queue in self.queues.values() for resource in queue.quota}
        return sorted(named - set(HOST_RESOURCES))

    def remark(self, queue: QueueDraft, message: str) -> None:
        """Something was changed at a queue: a comment says it, and the report."""
        queue.comments.append(message)
        self.adjustments.append((queue.name, message))


def ranked_values(values: Iterable[int], most: int = 1_000_000) -> dict[int, int]:
    """The same order in values that a PriorityClass can have: as they are where all fit, else by rank, 10 apart."""
    known = sorted(set(values))
    if all(-most <= value <= most for value in known):
        return {value: value for value in known}
    return {value: rank * 10 for rank, value in enumerate(known, start=1)}
