"""What is wrong with the namespaces that queues list: two queues that say different things of one, names that do not exist."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from reconciler.documents.declarations import Declaration
from reconciler.model.problem import Path, Problem, did_you_mean
from solver.policy.policy import NamespaceAccess, Queue

Queues = Sequence[Declaration[Queue]]

OWN_NAME: Final = "kubernetes.io/metadata.name"
"""The label in which the API server writes the name of each namespace."""


def namespace_problems(queues: Queues, known: set[str] | None, classes: set[str] | None) -> Iterator[Problem]:
    """`known`, `classes`: the names of all Queues and PriorityClasses; None where some are unreadable."""
    parents = {queue.value.parent for queue in queues}
    for queue in queues:
        for index, entry in enumerate(queue.value.access.namespaces):
            at: Path = ("spec", "access", "namespaces", index)
            yield from _class_problems(queue, at, entry, classes)
            yield from _name_problems(queue, at, entry, known)
            yield from _label_problems(queue, at, entry)
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


def _label_problems(queue: Declaration[Queue], at: Path, entry: NamespaceAccess) -> Iterator[Problem]:
    if entry.selector is not None and OWN_NAME in entry.selector.match_labels:
        where: Path = (*at, "selector", "matchLabels", OWN_NAME)
        message = f"the label {OWN_NAME} is the name of one namespace, and no selector reads it"
        fix = f"Write name: {entry.selector.match_labels[OWN_NAME]} in place of the selector."
        yield queue.problem(where, "label-is-the-name", message, fix)


def _contradictions(queues: Queues) -> Iterator[Problem]:
    """What is said twice of one namespace, or of all that begin alike: in one queue, or differently in two."""
    first: dict[tuple[str, str], str] = {}
    default: dict[str, tuple[str, str]] = {}
    local: dict[tuple[str, str], tuple[str, str]] = {}
    yield from _ambiguous_selectors(queues)
    for queue in queues:
        for index, entry in enumerate(queue.value.access.namespaces):
            at: Path = ("spec", "access", "namespaces", index)
            place = queue.origin_of(at)
            if (queue.name, entry.title) in first:
                message = f"namespace {entry.title} is listed already, at {first[queue.name, entry.title]}"
                yield queue.problem(
                    (*at, "selector" if entry.selector else "name"),
                    "duplicate-namespace",
                    message,
                    "Merge them into one.",
                )
            first.setdefault((queue.name, entry.title), place)
            other, there = default.setdefault(entry.title, (queue.name, place)) if entry.default else (queue.name, "")
            if other != queue.name:
                message = f"the default queue of namespace {entry.title} is {other} already, at {there}"
                yield queue.problem((*at, "default"), "second-default-queue", message, "Delete one of them.")
            for number, name in enumerate(entry.local_queues):
                other, there = local.setdefault((entry.title, name), (queue.name, place))
                if other != queue.name:
                    message = f"namespace {entry.title} calls queue {other} {name} already, at {there}"
                    yield queue.problem((*at, "localQueues", number), "second-local-queue", message, "Delete one.")


def _ambiguous_selectors(queues: Queues) -> Iterator[Problem]:
    """Selectors of as many labels that one namespace may meet, and that give it two default queues, or two queues of one name."""
    chosen = [
        (queue, index, entry, frozenset(entry.selector.pairs))
        for queue in queues
        for index, entry in enumerate(queue.value.access.namespaces)
        if entry.selector is not None and (entry.default or entry.local_queues)
    ]
    for number, (queue, index, entry, pairs) in enumerate(chosen):
        at: Path = ("spec", "access", "namespaces", index)
        for earlier, place, other, others in chosen[:number]:
            # Of the same labels it is told as of the same name.
            if earlier.name == queue.name or pairs == others or len(pairs) != len(others) or not _meet(entry, other):
                continue
            both = f"a namespace with the labels of {entry.title} and of {other.title}"
            there = earlier.origin_of(("spec", "access", "namespaces", place))
            fix = "Add a label to one of them: of several the one with the most labels counts."
            if entry.default and other.default:
                message = f"{both} would have two default queues: {earlier.name} at {there} too"
                yield queue.problem((*at, "default"), "second-default-queue", message, fix)
            for called in sorted(set(entry.local_queues) & set(other.local_queues)):
                message = f"{both} would call two queues {called}: {earlier.name} at {there} too"
                where: Path = (*at, "localQueues", entry.local_queues.index(called))
                yield queue.problem(where, "second-local-queue", message, fix)


def _meet(one: NamespaceAccess, other: NamespaceAccess) -> bool:
    """Whether a namespace may have the labels of both."""
    first, second = (entry.selector.match_labels if entry.selector else {} for entry in (one, other))
    return all(second.get(key, value) == value for key, value in first.items())
