"""How much of a pool may be closed for its health at once: a detector that is wrong must not close a cluster. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from math import ceil

import msgspec

from reconciler.model.health_policy import HealthPolicy
from reconciler.model.health_record import NodeHealth, PartHealth
from solver.model.cluster import Node, NodeName


def within_cap(
    judged: Mapping[NodeName, NodeHealth],
    before: Mapping[NodeName, NodeHealth],
    nodes: Iterable[Node],
    policy: HealthPolicy,
) -> dict[NodeName, NodeHealth]:
    """What was judged, where no more is closed than policy allows: what is closed already stays so, then what was found first is.

    A GPU counts as its part of a node. What is held back is suspect, and says so.
    """
    pools: defaultdict[str, list[Node]] = defaultdict(list)
    for node in nodes:
        pools[node.pool].append(node)
    held: defaultdict[NodeName, set[str]] = defaultdict(set)
    for pool in pools.values():
        for name, part in _too_many(pool, judged, before, ceil(Fraction(len(pool) * policy.unhealthy_percent, 100))):
            held[name].add(part.part)
    return {
        name: _held_back(record, before.get(name, NodeHealth(name)), held[name], policy) if name in held else record
        for name, record in judged.items()
    }


def held_back(records: Iterable[NodeHealth]) -> tuple[str, ...]:
    """The nodes and GPUs that would be closed if the cap were higher."""
    return tuple(part.part or record.node for record in records for part in record.parts if part.held_back)


def _too_many(
    pool: Iterable[Node], judged: Mapping[NodeName, NodeHealth], before: Mapping[NodeName, NodeHealth], most: int
) -> Iterator[tuple[NodeName, PartHealth]]:
    """The parts of a pool's nodes for which there is no room."""
    closing = [
        (not (last and last.is_closed), last.since if last and last.held_back else part.since, node.name, part, node)
        for node in pool
        if node.name in judged
        for part in judged[node.name].parts
        if part.is_closed
        for last in [_part(before.get(node.name), part.part)]
    ]
    closed: defaultdict[NodeName, Fraction] = defaultdict(Fraction)
    total = Fraction(0)
    for is_new, _, name, part, node in sorted(closing, key=lambda each: (*each[:3], each[3].part)):
        share = min(Fraction(1, len(node.gpus)) if part.part and node.gpus else Fraction(1), 1 - closed[name])
        if is_new and share and total + share > most:
            yield name, part
        else:
            closed[name] += share
            total += share


def _held_back(record: NodeHealth, before: NodeHealth, held: set[str], policy: HealthPolicy) -> NodeHealth:
    parts = (_spared(part, _part(before, part.part), policy) if part.part in held else part for part in record.parts)
    return msgspec.structs.replace(record, parts=tuple(parts))


def _spared(part: PartHealth, last: PartHealth | None, policy: HealthPolicy) -> PartHealth:
    return msgspec.structs.replace(
        part,
        state="suspect",
        held_back=True,
        since=last.since if last and last.state == "suspect" else part.since,
        reason=f"{part.reason}; it is not {part.state}, since no more than {policy.max_unhealthy} of its pool may be closed",
        test_from=None,
    )


def _part(record: NodeHealth | None, name: str) -> PartHealth | None:
    return next((part for part in record.parts if part.part == name), None) if record else None
