"""What follows from nodes' health: where nothing new starts, which jobs leave, and what is shown as in force. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from reconciler.model.health_record import NodeHealth, PartHealth
from reconciler.model.intervention_record import Intervention, Subject
from solver.model.quantities import Instant

AUTHOR: Final = "health"
NEVER: Final = Instant.parse("9999-12-31T00:00:00Z")
"""When something is over that only a person ends."""


def closed_places(records: Iterable[NodeHealth]) -> frozenset[str]:
    """The nodes and GPUs on which nothing new is to start."""
    return frozenset(part.part or record.node for record, part in _closed_parts(records))


def drained_places(records: Iterable[NodeHealth]) -> dict[str, str]:
    """The nodes and GPUs that what runs there is to leave, and why."""
    return {
        part.part or record.node: f"{_name(record, part)} is drained ({part.reason})"
        for record, part in _closed_parts(records)
        if part.state == "drained"
    }


def cordons(records: Iterable[NodeHealth]) -> tuple[Intervention, ...]:
    """Nodes that are cordoned or drained for their health, as if they had been cordoned by hand: Git does not say it."""
    return tuple(_cordon(record, part, part.reason) for record, part in _closed_parts(records) if not part.part)


def ended(record: NodeHealth, at: Instant, by: str) -> Intervention | None:
    """What is over when a person lets a node take work again, GPUs and all; None: nothing was in force."""
    parts = [part for _, part in _closed_parts((record,))]
    if not parts:
        return None
    reason = "; ".join(part.reason if not part.part else f"{part.part}: {part.reason}" for part in parts)
    cordon = _cordon(record, parts[0], reason)
    return Intervention(cordon.kind, cordon.subject, AUTHOR, reason, cordon.at, cordon.until, 0, at, "released", by)


def _closed_parts(records: Iterable[NodeHealth]) -> Iterator[tuple[NodeHealth, PartHealth]]:
    for record in records:
        yield from ((record, part) for part in record.parts if part.is_closed)


def _name(record: NodeHealth, part: PartHealth) -> str:
    return f"GPU {part.part} of {record.node}" if part.part else f"node {record.node}"


def _cordon(record: NodeHealth, part: PartHealth, reason: str) -> Intervention:
    return Intervention("cordon", Subject("node", record.node), AUTHOR, reason, part.since, part.until or NEVER)
