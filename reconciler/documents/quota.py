"""Whether the queues make sense together: a tree, with guarantees and ceilings that can all be kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from reconciler.documents.declarations import Declaration
from reconciler.documents.host_quota import host_quota_problems
from reconciler.model.problem import Path, Problem, did_you_mean
from solver.model.cluster import GpuType
from solver.model.quantities import MilliGpu
from solver.policy.policy import Queue, Quota
from solver.policy.user_shares import UserShares

DEPTH_MAX = 32
"""Organisations have five levels or so; a bound keeps every walk over the tree short."""


@dataclass(frozen=True)
class QuotaTree:
    """The declared queues. `known`: names of all queues in the repository, None where some are unreadable.

    `capacity`: declared GPUs by type; empty where nothing is declared, and then no type is called unknown.
    """

    queues: Sequence[Declaration[Queue]]
    known: set[str] | None
    capacity: Mapping[GpuType, MilliGpu]

    @cached_property
    def by_name(self) -> dict[str, Declaration[Queue]]:
        """The queues that could be read."""
        return {queue.name: queue for queue in self.queues}

    @cached_property
    def children(self) -> dict[str, list[Declaration[Queue]]]:
        """The queues below each queue."""
        below: dict[str, list[Declaration[Queue]]] = {queue.name: [] for queue in self.queues}
        for queue in self.queues:
            if queue.value.parent in below:
                below[queue.value.parent].append(queue)
        return below

    def problems(self) -> Iterator[Problem]:
        """Everything that is wrong. Sums are only taken over a tree, so not where there is a cycle."""
        yield from self._unknown_parents()
        for queue in self.queues:
            yield from _turn_problems(queue)
        yield from self._cycles()
        yield from self._too_deep()
        if not self.is_tree:
            for queue in self.queues:
                yield from self._entry_problems(queue)
            return
        yield from self.quota_problems(self.queues)
        for queue in self.queues:
            yield from self._user_problems(queue)
        yield from host_quota_problems(self.queues, self.children)

    @cached_property
    def is_tree(self) -> bool:
        """Whether no queue is its own ancestor, and none has too many above it."""
        return not [*self._cycles(), *self._too_deep()]

    def quota_problems(self, queues: Iterable[Declaration[Queue]]) -> Iterator[Problem]:
        """What is wrong with the quota of some queues, alone and beside that of all others; only in a tree."""
        for queue in queues:
            yield from self._entry_problems(queue)
            yield from self._ceiling_problems(queue)
            yield from self._sum_problems(queue)
            yield from self._sharing_problems(queue)

    def _unknown_parents(self) -> Iterator[Problem]:
        for queue in self.queues:
            parent = queue.value.parent
            if parent is not None and self.known is not None and parent not in self.known:
                yield queue.problem(
                    ("spec", "parent"),
                    "unknown-parent",
                    f"there is no Queue {parent}",
                    did_you_mean(parent, self.known),
                )

    def _cycles(self) -> Iterator[Problem]:
        reported: set[str] = set()
        for queue in self.queues:
            path = self.upwards(queue)
            if path[-1].value.parent == queue.name and queue.name not in reported:
                names = [step.name for step in path]
                reported.update(names)
                message = f"the queue is its own ancestor: {' -> '.join([*names, queue.name])}"
                yield queue.problem(
                    ("spec", "parent"), "parent-cycle", message, "Delete the parent of the one that is the root."
                )

    def _too_deep(self) -> Iterator[Problem]:
        deepest = max(self.queues, key=lambda queue: len(self.upwards(queue)), default=None)
        if deepest is not None and len(self.upwards(deepest)) > DEPTH_MAX:
            message = f"the queue has more than {DEPTH_MAX - 1} queues above it"
            yield deepest.problem(("spec", "parent"), "too-deep", message, "Make the tree flatter.")

    def upwards(self, queue: Declaration[Queue]) -> list[Declaration[Queue]]:
        """The queue and its ancestors, each once, at most one more than may be."""
        path = [queue]
        names = {queue.name}
        while path[-1].value.parent in self.by_name and path[-1].value.parent not in names and len(path) <= DEPTH_MAX:
            path.append(self.by_name[str(path[-1].value.parent)])
            names.add(path[-1].name)
        return path

    def _entry_problems(self, queue: Declaration[Queue]) -> Iterator[Problem]:
        seen: set[GpuType] = set()
        for index, entry in enumerate(queue.value.quota):
            at: Path = ("spec", "quota", index)
            if entry.gpu_type in seen:
                yield queue.problem(
                    (*at, "gpuType"), "duplicate-gpu-type", f"{entry.gpu_type} has two entries", "Merge them into one."
                )
            seen.add(entry.gpu_type)
            if self.capacity and entry.gpu_type not in self.capacity:
                message = f"no NodePool has GPUs of type {entry.gpu_type}"
                yield queue.problem(
                    (*at, "gpuType"), "unknown-gpu-type", message, did_you_mean(entry.gpu_type, self.capacity)
                )
            if entry.guaranteed is not None and entry.max is not None and entry.max < entry.guaranteed:
                message = f"max {entry.max} is less than guaranteed {entry.guaranteed} {entry.gpu_type}"
                yield queue.problem((*at, "max"), "max-below-guaranteed", message, "Raise max or lower guaranteed.")
            if entry.per_user is not None and entry.max is not None and entry.per_user > entry.max:
                # Harmless, but it says something that never binds: something else was meant.
                message = f"perUser {entry.per_user} is more than max {entry.max} {entry.gpu_type}: it never binds"
                fix = "Lower perUser, or delete it."
                yield queue.problem((*at, "perUser"), "per-user-above-max", message, fix, severity="warning")
            yield from _lending_problems(queue, at, entry)
            if entry.shared and not self.children[queue.name] and self.known is not None:
                # Harmless, but it says something that never counts: something else was meant.
                message = f"no queue is below this one: nobody shares its {entry.gpu_type}"
                fix = "Delete shared, or say it in the queue above."
                yield queue.problem((*at, "shared"), "shared-with-nobody", message, fix, severity="warning")
            yield from self._capacity_problems(queue, at, entry)

    def _capacity_problems(self, queue: Declaration[Queue], at: Path, entry: Quota) -> Iterator[Problem]:
        declared = self.capacity.get(entry.gpu_type)
        if queue.value.parent is None and declared is not None and (entry.guaranteed or 0) > declared:
            message = (
                f"guaranteed {entry.guaranteed} {entry.gpu_type}, but the node pools have {declared}: it can't be kept"
            )
            yield queue.problem((*at, "guaranteed"), "guarantee-above-capacity", message, severity="warning")

    def _ceiling_problems(self, queue: Declaration[Queue]) -> Iterator[Problem]:
        for index, entry in enumerate(queue.value.quota):
            for ancestor in self.upwards(queue)[1:]:
                above = ancestor.value.quota_for(entry.gpu_type)
                if above is None or above.max is None:
                    continue
                for field, value in (("guaranteed", entry.guaranteed), ("max", entry.max)):
                    if value is not None and value > above.max:
                        message = (
                            f"{field} {value} {entry.gpu_type} is more than max {above.max} of {ancestor.name} above it"
                        )
                        fix = f"Lower it, or raise the max at {ancestor.origin}."
                        yield queue.problem(("spec", "quota", index, field), "above-parent-max", message, fix)
                break

    def _sharing_problems(self, queue: Declaration[Queue]) -> Iterator[Problem]:
        for index, entry in enumerate(queue.value.quota):
            for ancestor in self.upwards(queue)[1:] if entry.shared else ():
                above = ancestor.value.quota_for(entry.gpu_type)
                if above is not None and above.shared:
                    message = f"queue {ancestor.name} above it shares its {entry.gpu_type} with all below it already"
                    fix = f"Delete shared here, or at {ancestor.origin}."
                    yield queue.problem(("spec", "quota", index, "shared"), "shared-below-shared", message, fix)

    def _user_problems(self, queue: Declaration[Queue]) -> Iterator[Problem]:
        """Who has its turn is decided by what jobs cost: users can't have theirs beside."""
        above = self.upwards(queue)
        sharing = next((step for step in above if step.value.users is not None), None)
        ordering = next((step for step in above if step.value.ordering is not None), None)
        users = sharing.value.users if sharing else None
        if users is not None and not users.fair_share and sharing is queue:
            yield from _without_fair_share(queue, users)
        if users is None or not users.fair_share or not ordering or not sharing or queue not in (sharing, ordering):
            return
        if users.reclaim and ordering.value.ordering is not None and ordering.value.ordering.by == "gittins":
            message = "users can't take back their shares where the order goes by gittins"
            where: Path = ("spec", "users", "reclaim") if queue is sharing else ("spec", "ordering", "by")
            yield queue.problem(where, "reclaim-by-gittins", message, "Order otherwise, or delete reclaim.")
        if ordering.value.ordering is not None and ordering.value.ordering.turns is not None:
            there = "" if sharing is ordering else f", as {(sharing if queue is ordering else ordering).origin} has it"
            message = f"jobs can't take turns where users share the queue fairly{there}"
            fix = "Delete turns, or set fairShare to false here."
            at: Path = ("spec", "users", "fairShare") if queue is sharing else ("spec", "ordering", "turns")
            yield queue.problem(at, "turns-beside-user-shares", message, fix)

    def _sum_problems(self, queue: Declaration[Queue]) -> Iterator[Problem]:
        for index, entry in enumerate(queue.value.quota):
            parts = {child.name: self._promised(child, entry.gpu_type) for child in self.children[queue.name]}
            total = MilliGpu(sum(parts.values()))
            if entry.guaranteed is not None and total > entry.guaranteed:
                listed = ", ".join(f"{name} {promised}" for name, promised in sorted(parts.items()) if promised)
                message = f"guaranteed {entry.guaranteed} {entry.gpu_type}, but the queues below it {total} ({listed})"
                fix = "Raise it, or lower theirs."
                yield queue.problem(("spec", "quota", index, "guaranteed"), "guarantees-exceed-parent", message, fix)

    def _promised(self, queue: Declaration[Queue], gpu_type: GpuType) -> MilliGpu:
        """What the queue is guaranteed explicitly, or what those below it are where it says nothing itself."""
        entry = queue.value.quota_for(gpu_type)
        if entry is not None and entry.guaranteed is not None:
            return entry.guaranteed
        return MilliGpu(sum(self._promised(child, gpu_type) for child in self.children[queue.name]))


def _lending_problems(queue: Declaration[Queue], at: Path, entry: Quota) -> Iterator[Problem]:
    """A part of a guarantee is lent: so there is one, and it is no smaller."""
    if entry.lendable is None:
        return
    if entry.guaranteed is None:
        message = f"lendable {entry.lendable} {entry.gpu_type} is a part of guaranteed, which is not stated"
        fix = "State guaranteed beside it, or delete lendable."
        yield queue.problem((*at, "lendable"), "lendable-without-guaranteed", message, fix)
    elif entry.lendable > entry.guaranteed:
        message = f"lendable {entry.lendable} is more than guaranteed {entry.guaranteed} {entry.gpu_type}"
        fix = "Lower it, or delete it: then all of the guarantee is lent."
        yield queue.problem((*at, "lendable"), "lendable-above-guaranteed", message, fix)


def _without_fair_share(queue: Declaration[Queue], users: UserShares) -> Iterator[Problem]:
    """Harmless, but it says something that never counts: something else was meant."""
    for field, stated in (("weights", users.weights), ("groupWeights", users.group_weights)):
        if stated:
            message, fix = "weights of users count only with fairShare", f"Set fairShare to true, or delete {field}."
            yield queue.problem(("spec", "users", field), "weights-without-fair-share", message, fix, "warning")
    if users.reclaim:
        message, fix = "users take back only what is fair", "Set fairShare to true, or delete reclaim."
        yield queue.problem(("spec", "users", "reclaim"), "reclaim-without-fair-share", message, fix, "warning")


def _turn_problems(queue: Declaration[Queue]) -> Iterator[Problem]:
    """Turns go to those that come first by what they have run or have to: the other orders would never end a turn."""
    ordering = queue.value.ordering
    if ordering is not None and ordering.turns is not None and ordering.by in ("priority", "fifo"):
        message = f"jobs can't take turns by {ordering.by}: it does not change while they run"
        fix = "Order by shortest, least-served or gittins, or delete turns."
        yield queue.problem(("spec", "ordering", "turns"), "turns-without-cost", message, fix)
