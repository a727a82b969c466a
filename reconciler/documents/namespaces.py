"""What is wrong with the namespaces that queues list: two queues that say different things of one, names that do not exist."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reconciler.documents.declarations import Declaration
from reconciler.model.problem import Path, Problem, did_you_mean
from solver.policy.policy import NamespaceAccess, Queue

Queues = Sequence[Declaration[Queue]]


def namespace_problems(queues: Queues, known: set[str] | None, classes: set[str] | None) -> Iterator[Problem]:
    """`known`, `classes`: the names of all Queues and PriorityClasses; None where some are unreadable."""
    parents = {queue.value.parent for queue in queues}
    for queue in queues:
        for index, entry in enumerate(queue.value.access.namespaces):
            at: Path = ("spec", "access", "namespaces", index)
            yield from _class_problems(queue, at, entry, classes)
            yield from _name_problems(queue, at, entry, known)
            if entry.default and queue.name in parents:
                message = f"{queue.name} has queues below it, so that no job can be in it by default"
                fix = "Write default: true in one of the queues below it."
                yield queue.problem((*at, "default"), "default-not-a-leaf", message, fix)
    yield from _contradictions(queues)


def _class_problems(
    queue: Declaration[Queue], at: Path, entry: NamespaceAccess, classes: set[str] | None
) -> Iterator[Problem]:
    taken = queue.value.priority_classes
    for place, name in enumerate(entry.priority_classes or ()):
        where: Path = (*at, "priorityClasses", place)
        if classes is not None and name not in classes:
            fix = did_you_mean(name, classes)
            yield queue.problem(where, "unknown-priority-class", f"there is no PriorityClass {name}", fix)
        elif taken is not None and name not in taken:
            message = f"queue {queue.name} does not take the priority class {name} from any namespace"
            fix = "Add it to priorityClasses of the queue, or delete it here."
            yield queue.problem(where, "class-not-taken", message, fix)


def _name_problems(
    queue: Declaration[Queue], at: Path, entry: NamespaceAccess, known: set[str] | None
) -> Iterator[Problem]:
    for place, name in enumerate(entry.local_queues):
        if known is not None and name in known and name != queue.name:
            message = f"{name} is the name of another Queue: the same label would mean one or the other"
            yield queue.problem((*at, "localQueues", place), "local-queue-is-a-queue", message, "Choose another name.")


def _contradictions(queues: Queues) -> Iterator[Problem]:
    """What is said twice of one namespace, or of all that begin alike: in one queue, or differently in two."""
    first: dict[tuple[str, str], str] = {}
    default: dict[str, tuple[str, str]] = {}
    local: dict[tuple[str, str], tuple[str, str]] = {}
    for queue in queues:
        for index, entry in enumerate(queue.value.access.namespaces):
            at: Path = ("spec", "access", "namespaces", index)
            place = queue.origin_of(at)
            if (queue.name, entry.name) in first:
                message = f"namespace {entry.name} is listed already, at {first[queue.name, entry.name]}"
                yield queue.problem((*at, "name"), "duplicate-namespace", message, "Merge them into one.")
            first.setdefault((queue.name, entry.name), place)
            other, there = default.setdefault(entry.name, (queue.name, place)) if entry.default else (queue.name, "")
            if other != queue.name:
                message = f"the default queue of namespace {entry.name} is {other} already, at {there}"
                yield queue.problem((*at, "default"), "second-default-queue", message, "Delete one of them.")
            for number, name in enumerate(entry.local_queues):
                other, there = local.setdefault((entry.name, name), (queue.name, place))
                if other != queue.name:
                    message = f"namespace {entry.name} calls queue {other} {name} already, at {there}"
                    yield queue.problem((*at, "localQueues", number), "second-local-queue", message, "Delete one.")
