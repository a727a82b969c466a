"""What differs in meaning between two revisions: documents compared field by field, so that layout and comments don't count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from reconciler.access.policy import AccessPolicy
from reconciler.documents.operations import Operations
from reconciler.documents.repository import Compiled
from reconciler.documents.topology import TopologySpec
from reconciler.model.health_policy import HealthPolicy
from reconciler.model.review_findings import DocumentChange, FieldChange
from solver.model.amounts import amount_in_words
from solver.model.cluster import Node
from solver.model.document import digest, to_builtins
from solver.model.quantities import Memory
from solver.policy.host_share import resource_of
from solver.policy.policy import Queue
from solver.policy.reservation import DeclaredReservation

Fields = Mapping[str, str]
"""A document as flat fields: `quota[H100-SXM5-80GB].max` and what it says."""

_ONE_OF_A_KIND: Mapping[str, Callable[[Operations], AccessPolicy | HealthPolicy | None]] = {
    "AccessPolicy": lambda operations: operations.access,
    "HealthPolicy": lambda operations: operations.health,
}
"""Documents of operations with names that mean nothing, since a cluster has at most one of each."""


def document_changes(before: Compiled, after: Compiled) -> Iterator[DocumentChange]:
    """What differs, sorted by document."""
    old, new = documents_of(before), documents_of(after)
    for document in sorted(old.keys() | new.keys()):
        at = after if document in new else before
        fields = tuple(_field_changes(old.get(document, {}), new.get(document, {}), _lines_of(document, before, after)))
        if document not in old:
            yield DocumentChange(document, "added", fields, place_of(document, at))
        elif document not in new:
            yield DocumentChange(document, "removed", fields, place_of(document, at))
        elif fields:
            yield DocumentChange(document, "changed", fields, place_of(document, at) or place_of(document, before))


def place_of(document: str, compiled: Compiled) -> str:
    """Where a document stands, as `file:line`; "" where it was not written."""
    if document == "SchedulingPolicy":
        return compiled.policy.scheduling.origin
    if document in _ONE_OF_A_KIND:
        only = _ONE_OF_A_KIND[document](compiled.operations)
        return only.origin if only else ""
    return compiled.places.get(document, "")


def _lines_of(document: str, *revisions: Compiled) -> Fields:
    """The places of a queue's quotas and namespaces, by field: the later revision's where both have one."""
    kind, _, name = document.partition(" ")
    queues = [queue for revision in revisions if kind == "Queue" and (queue := revision.policy.queue(name))]
    quotas = {f"quota[{entry.gpu_type}]": entry.origin for queue in queues for entry in queue.quota}
    quotas |= {f"hostQuota[{resource_of(entry)}]": entry.origin for queue in queues for entry in queue.host_quota}
    listed = (entry for queue in queues for entry in queue.access.namespaces)
    quotas |= {
        f"hours[{hours.name}].quota[{row.gpu_type}]": row.origin
        for queue in queues
        for hours in queue.hours
        for row in hours.quota
    }
    quotas |= {f"hours[{hours.name}]": hours.origin for queue in queues for hours in queue.hours}
    return quotas | {f"access.namespaces[{entry.title}]": entry.origin for entry in listed}


def documents_of(compiled: Compiled) -> dict[str, Fields]:
    """Every document by `Kind name`. Inventory is told pool by pool."""
    policy = compiled.policy
    documents: dict[str, Fields] = {
        f"Queue {queue.name}": flat(to_builtins(_queue_as_written(queue))) for queue in policy.queues
    }
    documents |= {f"SharingPolicy {known.name}": flat(to_builtins(known)) for known in policy.sharing}
    documents |= {f"MigGeometry {known.name}": flat(to_builtins(known)) for known in policy.mig}
    documents |= {f"Reservation {known.name}": flat(to_builtins(as_written(known))) for known in policy.reservations}
    documents |= {
        f"CheckpointPolicy {known.name}": flat(to_builtins(known)) for known in compiled.operations.checkpoints
    }
    documents |= {f"RetryPolicy {known.name}": flat(to_builtins(known)) for known in compiled.operations.retry}
    documents |= {f"AlertPolicy {known.name}": flat(to_builtins(known)) for known in compiled.operations.alerts}
    documents |= {f"RateCard {known.name}": flat(to_builtins(known)) for known in compiled.operations.rates}
    documents |= {f"IdlePolicy {known.name}": flat(to_builtins(known)) for known in compiled.operations.idle}
    documents |= {f"Budget {known.name}": flat(to_builtins(known)) for known in compiled.operations.budgets}
    documents |= {f"PriorityClass {known.name}": flat(to_builtins(known)) for known in policy.priority_classes}
    documents["SchedulingPolicy"] = flat(to_builtins(policy.scheduling))
    for kind, only in _ONE_OF_A_KIND.items():
        if only(compiled.operations):
            documents[kind] = flat(to_builtins(only(compiled.operations)))
    documents |= {f"Topology {name}": _topology_fields(known) for name, known in compiled.topologies.items()}
    pools: dict[str, list[Node]] = {}
    for node in compiled.nodes:
        pools.setdefault(node.pool, []).append(node)
    return documents | {f"NodePool {name}": _pool_fields(nodes) for name, nodes in pools.items()}


def as_written(known: DeclaredReservation) -> DeclaredReservation:
    """A document as its owner wrote it: without what its rule comes to."""
    if known.repeat is None:
        return known
    return msgspec.structs.replace(known, repeat=msgspec.structs.replace(known.repeat, windows=()))


def _queue_as_written(queue: Queue) -> Queue:
    if queue.users is not None and queue.users.member_weights:
        queue = msgspec.structs.replace(queue, users=msgspec.structs.replace(queue.users, member_weights={}))
    bare = (
        msgspec.structs.replace(hours, repeat=msgspec.structs.replace(hours.repeat, windows=()))
        for hours in queue.hours
    )
    return msgspec.structs.replace(queue, hours=tuple(bare)) if queue.hours else queue


def meaning_of(compiled: Compiled) -> str:
    """Names a revision by all that its documents say: layout, comments and the order of files don't count."""
    return digest(sorted((name, sorted(fields.items())) for name, fields in documents_of(compiled).items()))


def flat(value: Any, path: str = "") -> dict[str, str]:
    """Nested fields as `a.b`, list entries by what names them (`quota[H100].max`). Names and places in files are left out."""
    if isinstance(value, dict) and path in _BY_NAME:
        inside = [(f"{path}[{key}]", entry) for key, entry in value.items()]
    elif isinstance(value, dict):
        inside = [(f"{path}.{key}" if path else key, entry) for key, entry in value.items() if key not in _NOT_MEANING]
    elif isinstance(value, list | tuple):
        inside = [(f"{path}[{_name_of(entry, number)}]", entry) for number, entry in enumerate(value)]
        # An entry that says no more than what it is called is there all the same.
        inside = [(where, entry if flat(entry) else _LISTED) for where, entry in inside]
    else:
        return {path: str(value)}
    return {field: text for where, entry in inside for field, text in flat(entry, where).items()}


_LISTED: Final = "listed"
_BY_NAME: Final = ("users.weights", "users.groupWeights")
"""Fields whose keys are names that people give."""
_NOT_MEANING = ("name", "origin", "gpuType", "resource", "selector")
"""What a document or an entry is called, and where it stands."""


def _name_of(entry: Any, number: int) -> str:
    if isinstance(entry, dict) and "selector" in entry:
        return ",".join(sorted(f"{key}={value}" for key, value in entry["selector"]["matchLabels"].items()))
    if not isinstance(entry, dict):
        return str(number)
    return str(next((entry[key] for key in ("gpuType", "resource", "name") if key in entry), number))


def _field_changes(before: Fields, after: Fields, lines: Fields) -> Iterator[FieldChange]:
    for field in sorted(before.keys() | after.keys()):
        if before.get(field) != after.get(field):
            line = lines.get(field) or lines.get(field.rpartition(".")[0], "")
            yield FieldChange(field, before.get(field), after.get(field), line)


def _topology_fields(topology: TopologySpec) -> Fields:
    """The nodes of a domain as one list: where one stands in it means nothing."""
    fields = flat(to_builtins(msgspec.structs.replace(topology, domains=None)))
    for domain in topology.domains or ():
        bare = flat(to_builtins(msgspec.structs.replace(domain, nodes=())), f"domains[{domain.name}]")
        fields = {**fields, **bare}
        if domain.nodes:
            fields[f"domains[{domain.name}].nodes"] = ", ".join(sorted(domain.nodes))
    return fields


def _pool_fields(nodes: Iterable[Node]) -> Fields:
    """A pool by what its nodes have: `cpu: 96`, or `64 (2 nodes), 96 (14 nodes)` where they differ; and by its domains."""
    nodes = tuple(nodes)
    machines: dict[str, list[object]] = {
        "gpuType": [node.gpu_type for node in nodes],
        "gpusPerNode": [len(node.gpus) for node in nodes],
        "gpuMemory": [min((gpu.memory for gpu in node.gpus), default=Memory(0)) for node in nodes],
        "cpu": [node.cpu for node in nodes],
        "memory": [node.memory for node in nodes],
        "labels": [", ".join(node.labels) for node in nodes],
        **{
            f"resources.{name}": [amount_in_words(node.resources.get(name, 0)) for node in nodes]
            for name in sorted({name for node in nodes for name in node.resources})
        },
    }
    domains = {
        "islands": {node.island for node in nodes},
        "racks": {node.rack for node in nodes},
        "blocks": {node.block for node in nodes},
    }
    cordoned = [node.name for node in nodes if node.cordoned]
    return {
        "nodes": str(len(nodes)),
        **({"cordoned": ", ".join(cordoned)} if cordoned else {}),
        **{field: _summary(values) for field, values in machines.items() if any(values)},
        **{field: str(len(names)) for field, names in domains.items() if any(names)},
    }


def _summary(values: Iterable[object]) -> str:
    tally = Counter(str(value) for value in values)
    if len(tally) == 1:
        return next(iter(tally))
    return ", ".join(f"{value or 'none'} ({nodes} node{'s' * (nodes > 1)})" for value, nodes in sorted(tally.items()))
