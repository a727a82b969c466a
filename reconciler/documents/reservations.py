"""What is wrong with Reservation documents: alone, beside the queues and nodes that there are, and beside each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from reconciler.documents.declarations import Declaration
from reconciler.documents.inventory import NODES_MAX, NodePoolSpec, Pools
from reconciler.documents.repeats import LONGEST, repeat_problems, with_windows
from reconciler.model.problem import Path, Problem, did_you_mean
from solver.model.cluster import NodeName
from solver.model.quantities import Duration
from solver.policy.reservation import DeclaredReservation

_COUNTED = {"gpuType": "gpu_type", "count": "count", "gpusPerNode": "gpus_per_node"}

Reservations = Sequence[Declaration[DeclaredReservation]]


def with_its_windows(document: Declaration[DeclaredReservation]) -> Declaration[DeclaredReservation]:
    """A document that repeats, with all its windows; as it is where its rule is wrong, which `reservation_problems` tells."""
    value = document.value
    if value.repeat is None:
        return document
    return document.holding(msgspec.structs.replace(value, repeat=with_windows(value.repeat, value.start)))


def reservation_problems(documents: Reservations, pools: Pools | None, queues: set[str] | None) -> Iterator[Problem]:
    """`pools`: all of them, `queues`: the names of all; None where some are unreadable."""
    sound = []
    for document in documents:
        own = [*_window_problems(document), *_user_problems(document, queues), *_way_problems(document)]
        yield from own
        if not own:
            sound.append(document)
    if pools is not None and sum(pool.value.size() for pool in pools) <= NODES_MAX:
        pool_of = {name: pool.value for pool in pools for name in pool.value.node_names()}
        for document in sound:
            yield from _inventory_problems(document, pool_of, pools)
        yield from _together(sound, pool_of, pools)
    yield from _named_twice(sound)


def _window_problems(document: Declaration[DeclaredReservation]) -> Iterator[Problem]:
    value, at = document.value, ("spec", "until")
    has_end = value.ends is not None
    if value.repeat is not None:
        if has_end:
            fix = "Delete until: the rule says when the last window begins, and duration how long it lasts."
            yield document.problem(at, "choose-one", "until beside repeat", fix)
        yield from repeat_problems(document, ("spec", "repeat"), value.repeat, value.start)
    elif not has_end:
        yield document.problem(("spec",), "missing-field", "it never ends", "Add until, or repeat.")
    elif value.until <= value.start:
        yield document.problem(at, "wrong-window", f"until {value.until} is not after from {value.start}")
    elif value.until - value.start > LONGEST:
        message = f"it lasts for {Duration(value.until - value.start)}"
        yield document.problem(at, "wrong-window", message, f"Shorten it to {LONGEST} at most.")


def _user_problems(document: Declaration[DeclaredReservation], queues: set[str] | None) -> Iterator[Problem]:
    queue = document.value.queue
    if queue is None and document.value.users is None:
        yield document.problem(("spec",), "missing-field", "no job may use it", "Add queue, users, or both.")
    if queue is not None and queues is not None and queue not in queues:
        fix = did_you_mean(queue, queues)
        yield document.problem(("spec", "queue"), "unknown-queue", f"there is no Queue {queue}", fix)


def _way_problems(document: Declaration[DeclaredReservation]) -> Iterator[Problem]:
    """It keeps nodes by name, or GPUs by count."""
    given = [name for name, field in _COUNTED.items() if getattr(document.value, field) is not None]
    missing = [name for name in _COUNTED if name not in given]
    if document.value.nodes is not None:
        for name in given:
            message = f"{name} beside nodes, which are kept whole"
            yield document.problem(("spec", name), "choose-one", message, "Keep only one of them.")
    elif missing:
        message, fix = f"{', '.join(missing)} is missing", "Add nodes, or all of gpuType, count and gpusPerNode."
        yield document.problem(("spec",), "missing-field", message, fix)


def _inventory_problems(
    document: Declaration[DeclaredReservation], pool_of: Mapping[NodeName, NodePoolSpec], pools: Pools
) -> Iterator[Problem]:
    """Nodes and GPU types that do not exist, and more than there is."""
    value = document.value
    for index, name in enumerate(document.document.value["spec"].get("nodes", ())):
        if name not in pool_of:
            at: Path = ("spec", "nodes", index)
            yield document.problem(at, "unknown-node", f"there is no node {name}", did_you_mean(name, pool_of))
    if value.gpu_type is None or value.count is None or value.gpus_per_node is None:
        return
    types = {pool.value.gpu_type for pool in pools if pool.value.gpus_per_node}
    most = sum(
        pool.value.size() * (pool.value.gpus_per_node // value.gpus_per_node)
        for pool in pools
        if pool.value.gpu_type == value.gpu_type
    )
    if value.gpu_type not in types:
        message, fix = f"no NodePool has {value.gpu_type}", did_you_mean(value.gpu_type, types)
        yield document.problem(("spec", "gpuType"), "unknown-gpu-type", message, fix)
    elif value.count > most:
        message = f"the nodes have {most} times {value.gpus_per_node} {value.gpu_type}, not {value.count}"
        yield document.problem(("spec", "count"), "more-than-there-is", message)


@dataclass(frozen=True, slots=True)
class _Kept:
    """What one document keeps at one time."""

    document: Declaration[DeclaredReservation]
    value: DeclaredReservation


def _in_turn(documents: Reservations) -> Iterator[tuple[_Kept, Sequence[_Kept]]]:
    """Each document, or each of its windows, with what others keep when it begins."""
    kept = [_Kept(document, one) for document in documents for one in document.value.occurrences()]
    beside: list[_Kept] = []
    for one in sorted(kept, key=lambda known: (known.value.start, known.value.name)):
        beside = [other for other in beside if one.value.start < other.value.until]
        yield one, tuple(other for other in beside if other.document is not one.document)
        beside.append(one)


def _together(documents: Reservations, pool_of: Mapping[NodeName, NodePoolSpec], pools: Pools) -> Iterator[Problem]:
    """Those that keep more GPUs of a type than there are, beside those that began before them."""
    declared: Counter[str] = Counter()
    for pool in pools:
        declared[pool.value.gpu_type] += pool.value.size() * pool.value.gpus_per_node
    told = set[tuple[str, str]]()
    for one, beside in _in_turn(documents):
        document, start = one.document, one.value.start
        if all(known.value.nodes is not None for known in (one, *beside)):
            continue  # What these keep twice they name.
        for gpu_type, most in sorted(declared.items()):
            before = {other.document.name: _gpus_of(other.value, gpu_type, pool_of) for other in beside}
            own = _gpus_of(one.value, gpu_type, pool_of)
            if own <= most < sum(before.values()) + own and (document.name, gpu_type) not in told:
                told.add((document.name, gpu_type))  # Once, however often it comes again.
                names = ", ".join(name for name, gpus in before.items() if gpus)
                message = f"at {start} it and {names} keep {sum(before.values()) + own} of {most} {gpu_type}"
                at: Path = ("spec", "count" if document.value.nodes is None else "nodes")
                yield document.problem(at, "more-than-there-is", message, "Shorten one, or move it.")


def _gpus_of(value: DeclaredReservation, gpu_type: str, pool_of: Mapping[NodeName, NodePoolSpec]) -> int:
    if value.nodes is None:
        return (value.count or 0) * (value.gpus_per_node or 0) if value.gpu_type == gpu_type else 0
    there = [pool_of[name] for name in value.nodes if name in pool_of]
    return sum(pool.gpus_per_node for pool in there if pool.gpu_type == gpu_type)


def _named_twice(documents: Reservations) -> Iterator[Problem]:
    """Nodes that two documents keep at the same time."""
    found = dict[tuple[str, str], Problem]()
    places = {document.name: place for place, document in enumerate(documents)}
    for one, beside in _in_turn(documents):
        for other in beside:
            # It is told of the later document, in the order in which they were read.
            first, later = sorted((one.document, other.document), key=lambda known: places[known.name])
            both = {*(one.value.nodes or ())} & {*(other.value.nodes or ())}
            for index, name in enumerate(later.document.value["spec"].get("nodes", ()) if both else ()):
                if name in both and (later.name, name) not in found:
                    message = f"node {name} is kept at the same time by {first.name}, at {first.origin}"
                    at: Path = ("spec", "nodes", index)
                    found[later.name, name] = later.problem(
                        at, "kept-twice", message, "Take it out of one, or move one."
                    )
    yield from found.values()
