"""What queues may hold of CPU and memory: rows of `quota` that name a resource, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from reconciler.documents.declarations import Declaration
from reconciler.documents.reader import Located
from reconciler.documents.sizes import bare_size
from reconciler.model.problem import Path, Problem
from solver.policy.host_share import HostQuota, MemoryQuota, Resource, resource_of
from solver.policy.policy import Queue

RESOURCES: tuple[Resource, ...] = ("cpu", "memory")


def with_host_rows_apart(document: Located) -> Located:
    """A Queue in which the rows of `quota` that name a resource stand in `hostQuota`, each with its place in the file."""
    spec = document.value.get("spec") if isinstance(document.value, dict) else None
    rows = spec.get("quota") if isinstance(spec, dict) else None
    if not isinstance(spec, dict) or not isinstance(rows, list):
        return document
    if not any(isinstance(row, dict) and "resource" in row for row in rows):
        return document
    written = spec.get("hostQuota")
    apart: list[Any] = list(written) if isinstance(written, list) else []
    kept, new_places = list[Any](), dict[int, Path]()
    for index, row in enumerate(rows):
        of_host = isinstance(row, dict) and "resource" in row
        into = apart if of_host else kept
        new_places[index] = ("spec", "hostQuota" if of_host else "quota", len(into))
        into.append(row)

    def moved(path: Path) -> Path:
        if path[:2] == ("spec", "quota") and len(path) > 2 and isinstance(path[2], int):
            return (*new_places[path[2]], *path[3:])
        return path

    def remapped(places: Mapping[Path, Any]) -> dict[Path, Any]:
        return {moved(path): place for path, place in places.items()}

    value = {**document.value, "spec": {**spec, "quota": kept, "hostQuota": apart}}
    return replace(document, value=value, places=remapped(document.places), key_places=remapped(document.key_places))


def host_quota_problems(
    queues: Sequence[Declaration[Queue]], children: Mapping[str, Sequence[Declaration[Queue]]]
) -> Iterator[Problem]:
    """Rows that say a resource twice, or can't all be kept. `children`: the queues below each; they are a tree."""
    by_name = {queue.name: queue for queue in queues}
    for queue in queues:
        seen = set[Resource]()
        for index, entry in enumerate(queue.value.host_quota):
            at: Path = ("spec", "hostQuota", index)
            resource = resource_of(entry)
            if resource in seen:
                message = f"{resource} has two entries"
                yield queue.problem(at, "duplicate-resource", message, "Merge them into one.")
            seen.add(resource)
            if entry.guaranteed is not None and entry.max is not None and entry.max < entry.guaranteed:
                message = f"max {entry.max} is less than guaranteed {entry.guaranteed} of {resource}"
                yield queue.problem((*at, "max"), "max-below-guaranteed", message, "Raise max or lower guaranteed.")
            yield from _size_problems(queue, at, entry)
            yield from _lending_problems(queue, at, entry)
            yield from _sharing_problems(queue, at, entry, children, by_name)
            if entry.per_user is not None and entry.max is not None and entry.per_user > entry.max:
                # Harmless, but it says something that never binds: something else was meant.
                message = f"perUser {entry.per_user} is more than max {entry.max} of {resource}: it never binds"
                fix = "Lower perUser, or delete it."
                yield queue.problem((*at, "perUser"), "per-user-above-max", message, fix, severity="warning")
            yield from _sum_problems(queue, at, entry, children)


def _size_problems(queue: Declaration[Queue], at: Path, entry: HostQuota) -> Iterator[Problem]:
    """Memory without a unit is bytes, which no queue means."""
    if not isinstance(entry, MemoryQuota):
        return
    fields = {"guaranteed": entry.guaranteed, "lendable": entry.lendable, "max": entry.max, "perUser": entry.per_user}
    for field, size in fields.items():
        if found := bare_size(f"{field} of memory", size):
            yield queue.problem((*at, field), "bare-size", *found, severity="warning")


def _lending_problems(queue: Declaration[Queue], at: Path, entry: HostQuota) -> Iterator[Problem]:
    """A part of a guarantee is lent: so there is one, and it is no smaller."""
    resource = resource_of(entry)
    if entry.lendable is not None and entry.guaranteed is None:
        message = f"lendable {entry.lendable} of {resource} is a part of guaranteed, which is not stated"
        fix = "State guaranteed beside it, or delete lendable."
        yield queue.problem((*at, "lendable"), "lendable-without-guaranteed", message, fix)
    elif entry.lendable is not None and entry.guaranteed is not None and entry.lendable > entry.guaranteed:
        message = f"lendable {entry.lendable} is more than guaranteed {entry.guaranteed} of {resource}"
        fix = "Lower it, or delete it: then all of the guarantee is lent."
        yield queue.problem((*at, "lendable"), "lendable-above-guaranteed", message, fix)


def _sharing_problems(
    queue: Declaration[Queue],
    at: Path,
    entry: HostQuota,
    children: Mapping[str, Sequence[Declaration[Queue]]],
    by_name: Mapping[str, Declaration[Queue]],
) -> Iterator[Problem]:
    """What is shared is a guarantee, which queues below have in common, and none above shares already."""
    if not entry.shared:
        return
    resource, where = resource_of(entry), (*at, "shared")
    if entry.guaranteed is None:
        message = f"shared is about guaranteed of {resource}, which is not stated"
        fix = "State guaranteed beside it, or delete shared."
        yield queue.problem(where, "shared-without-guaranteed", message, fix)
    if not children.get(queue.name):
        # Harmless, but it says something that never counts: something else was meant.
        message, fix = (
            f"no queue is below this one: nobody shares its {resource}",
            "Delete shared, or say it in the queue above.",
        )
        yield queue.problem(where, "shared-with-nobody", message, fix, severity="warning")
    above = by_name.get(str(queue.value.parent))
    while above is not None:
        row = above.value.host_quota_for(resource)
        if row is not None and row.shared:
            message = f"queue {above.name} above it shares its {resource} with all below it already"
            yield queue.problem(where, "shared-below-shared", message, f"Delete shared here, or at {above.origin}.")
        above = by_name.get(str(above.value.parent))


def _sum_problems(
    queue: Declaration[Queue], at: Path, entry: HostQuota, children: Mapping[str, Sequence[Declaration[Queue]]]
) -> Iterator[Problem]:
    resource = resource_of(entry)
    parts = {child.name: _promised(child, resource, children) for child in children.get(queue.name, ())}
    if entry.guaranteed is not None and sum(parts.values()) > entry.guaranteed:
        total = type(entry.guaranteed)(sum(parts.values()))
        message = f"guaranteed {entry.guaranteed} of {resource}, but the queues below it {total}"
        yield queue.problem((*at, "guaranteed"), "guarantees-exceed-parent", message, "Raise it, or lower theirs.")


def _promised(
    queue: Declaration[Queue], resource: Resource, children: Mapping[str, Sequence[Declaration[Queue]]]
) -> int:
    """What a queue is guaranteed, or what those below it are where it says nothing itself."""
    entry = queue.value.host_quota_for(resource)
    if entry is not None and entry.guaranteed is not None:
        return int(entry.guaranteed)
    return sum(_promised(child, resource, children) for child in children.get(queue.name, ()))
