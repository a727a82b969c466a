"""What queues are guaranteed of CPU and memory for their jobs without GPUs, and which of these jobs lie inside.

What a queue shares with those below it (docs/shared-guarantees.md) is counted beside that: there nothing limits the queues below.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from solver.model.workload import QueueName
from solver.policy.host_share import Resource
from solver.policy.tree import QueueTree
from solver.quota.dominance import HostUse
from solver.quota.users import HostLine

UNBOUNDED = 2**62
"""Milli-cores or bytes: more than there ever are."""

RESOURCES: tuple[Resource, ...] = ("cpu", "memory")


class HeldAlone(NamedTuple):
    """CPU and memory that a job without GPUs holds, or part of one."""

    queue: QueueName
    beside: HostUse


@dataclass(frozen=True, slots=True)
class HostGuarantees:
    """By queue and resource what is guaranteed, and what jobs hold that lie inside; no lines where no queue states any."""

    tree: QueueTree
    guaranteed: Mapping[HostLine, int]
    inside: Mapping[HostLine, int] = field(default_factory=dict)

    @classmethod
    def of(cls, tree: QueueTree) -> HostGuarantees:
        """As queues state it; a queue that does not is guaranteed what those below it are."""
        stated = {
            HostLine(queue.name, resource): int(entry.guaranteed)
            for queue in tree.by_name.values()
            for resource in RESOURCES
            if (entry := queue.host_quota_for(resource)) is not None and entry.guaranteed is not None
        }
        guaranteed = dict[HostLine, int]()

        def add_up(queue: QueueName, resource: Resource) -> int:
            below = sum(add_up(child.name, resource) for child in tree.children.get(queue, ()))
            line = HostLine(queue, resource)
            guaranteed[line] = stated.get(line, below)
            return guaranteed[line]

        for root in tree.children.get(None, ()) if stated else ():
            for resource in RESOURCES:
                add_up(root.name, resource)
        return cls(tree, guaranteed)

    @property
    def common(self) -> HostGuarantees:
        """What may be claimed: below a queue that shares its guarantee nothing limits it. No lines where none shares any."""
        if not self.tree.shares_host:
            return HostGuarantees(self.tree, {})
        limits = {
            line: amount if self.tree.host_sharing(*line[:2]) is None else UNBOUNDED
            for line, amount in self.guaranteed.items()
        }
        return HostGuarantees(self.tree, limits)

    def sharing(self, held: HeldAlone) -> list[tuple[HostLine, int]]:
        """The lines above a queue that share, with what this counts on each; [] where none does."""
        lines = list[tuple[HostLine, int]]()
        for resource, amount in zip(RESOURCES, held.beside, strict=True):
            above = self.tree.host_sharing(held.queue, resource) if amount else None
            lines += [(HostLine(above, resource), amount)] if above is not None else []
        return lines

    def lies_inside(self, held: HeldAlone) -> bool:
        """Whether this much more would lie inside at every level."""
        return bool(self.guaranteed) and all(
            self.inside.get(line, 0) + amount <= self.guaranteed.get(line, 0) for line, amount in self._lines(held)
        )

    def beside_more(self, held: Iterable[HeldAlone]) -> HostGuarantees:
        """The same once this is held as well."""
        inside = dict(self.inside)
        for one in held if self.guaranteed else ():
            for line, amount in self._lines(one):
                inside[line] = inside.get(line, 0) + amount
        return HostGuarantees(self.tree, self.guaranteed, inside)

    def those_inside(self, in_line: Sequence[HeldAlone]) -> tuple[list[bool], HostGuarantees]:
        """Of jobs that stand in line which lie inside at every level, each as a whole; and what that leaves.

        At each level those are asked, in line, that lie inside below it.
        """
        stays = [bool(self.guaranteed)] * len(in_line)
        by_depth = sorted(self.tree.by_name, key=lambda name: (-len(self.tree.path(name)), name))
        for queue in by_depth if self.guaranteed else ():
            left = {r: self.guaranteed[HostLine(queue, r)] - self.inside.get(HostLine(queue, r), 0) for r in RESOURCES}
            for number, held in enumerate(in_line):
                if stays[number] and queue in self.tree.path(held.queue):
                    wanted: dict[Resource, int] = {"cpu": held.beside.cpu, "memory": held.beside.memory}
                    stays[number] = all(not amount or amount <= left[r] for r, amount in wanted.items())
                    left = {r: left[r] - wanted[r] for r in RESOURCES} if stays[number] else left
        inside = (held for held, stay in zip(in_line, stays, strict=True) if stay)
        return stays, self.beside_more(inside)

    def _lines(self, held: HeldAlone) -> list[tuple[HostLine, int]]:
        amounts = ((resource, getattr(held.beside, resource)) for resource in RESOURCES)
        asked = [(resource, int(amount)) for resource, amount in amounts if amount]
        return [(HostLine(queue, r), amount) for queue in self.tree.path(held.queue) for r, amount in asked]
