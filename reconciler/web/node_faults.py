"""What is out of order with a node and its GPUs: since when, until when, why, and which of it keeps new jobs away."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from reconciler.model.health_record import NodeHealth, PartHealth
from reconciler.model.intervention_record import Intervention
from solver.model.cluster import DeviceId, Gpu, Node, NodeName
from solver.model.inflight import Repartitioning
from solver.model.quantities import Instant

FaultState = Literal["not ready", "cordoned", "drained", "suspect", "not well", "being partitioned", "linked otherwise"]

_CLOSING: Final = frozenset[FaultState]({"not ready", "cordoned", "drained", "not well", "being partitioned"})

_OUTDATED: Final = "what closed it is over; the next pass sees it so"


class NodeFault(NamedTuple):
    """Of a node, or of the GPU `part` of it. `by`: who or what says so; `since` and `until` None: it is not known, or open."""

    node: NodeName
    part: str
    state: FaultState
    why: str
    by: str
    since: Instant | None = None
    until: Instant | None = None

    @property
    def closes(self) -> bool:
        """No new job begins there."""
        return self.state in _CLOSING


@dataclass(frozen=True, slots=True)
class NodeEvidence:
    """What is known of nodes beside the snapshot. `declared`: as Git has them; `seen`: as the backend told of them last.
    `cordons`: those by hand; `changing`: GPUs that are being partitioned."""

    now: Instant
    declared: Mapping[NodeName, Node] = field(default_factory=dict)
    seen: Mapping[NodeName, Node] = field(default_factory=dict)
    health: Mapping[NodeName, NodeHealth] = field(default_factory=dict)
    cordons: Mapping[str, Intervention] = field(default_factory=dict)
    changing: Mapping[DeviceId, Repartitioning] = field(default_factory=dict)
    nvlink: Mapping[NodeName, str] = field(default_factory=dict)

    def faults(self, node: Node) -> tuple[NodeFault, ...]:
        """Of the node itself, then of its GPUs in their order. `node`: as the last pass saw it."""
        health = self.health.get(node.name, NodeHealth(node.name))
        parts = {part.part: part for part in health.parts}
        found = [*self._of_node(node, health, parts.get(""))]
        for gpu in node.gpus:
            found += self._of_gpu(node, gpu, parts.get(gpu.id))
        return tuple(found)

    def _of_node(self, node: Node, health: NodeHealth, part: PartHealth | None) -> Iterator[NodeFault]:
        seen, declared = self.seen.get(node.name), self.declared.get(node.name)
        if not node.ready:
            since = next((finding.since for finding in health.findings if finding.kind == "lost"), None)
            why = "nothing is heard of it" if seen is None else "it does not take work, as is told of it"
            yield NodeFault(node.name, "", "not ready", why, "backend", since)
        by_hand = self.cordons.get(node.name)
        if by_hand is not None:
            yield NodeFault(node.name, "", "cordoned", by_hand.reason, by_hand.author, by_hand.at, by_hand.until)
        if part is not None:
            yield _of_health(node.name, part)
        if declared is not None and declared.cordoned:
            yield NodeFault(node.name, "", "cordoned", "its NodePool says so", "policy repository")
        elif seen is not None and seen.cordoned:
            why = "its cluster closes it: by a cordon, a taint, or as many pods as it may have"
            yield NodeFault(node.name, "", "cordoned", why, "backend")
        elif node.cordoned and by_hand is None and not (part and part.is_closed):
            yield NodeFault(node.name, "", "cordoned", _OUTDATED, "last pass")
        if node.name in self.nvlink:
            yield NodeFault(node.name, "", "linked otherwise", self.nvlink[node.name], "backend")

    def _of_gpu(self, node: Node, gpu: Gpu, part: PartHealth | None) -> Iterator[NodeFault]:
        if part is not None:
            yield _of_health(node.name, part)
        if (asked := self.changing.get(gpu.id)) is not None:
            into = ", ".join(each.profile for each in asked.instances or ()) or (
                "no instances" if asked.instances is not None else "one whole GPU"
            )
            late = f"; that should have been done by {asked.deadline}" if self.now >= asked.deadline else ""
            why = f"it becomes {into}{late}"
            yield NodeFault(node.name, gpu.id, "being partitioned", why, "round", asked.asked_at)
        if gpu.healthy or (part is not None and part.is_closed):
            return
        seen = self.seen.get(node.name)
        if seen is None:
            return  # Of its GPUs nothing is heard either, which is said of the node.
        told = next((each for each in seen.gpus if each.id == gpu.id), None)
        why = "its node does not tell of it" if told is None else "its node says so" if not told.healthy else _OUTDATED
        yield NodeFault(node.name, gpu.id, "not well", why, "backend" if why != _OUTDATED else "last pass")


def _of_health(node: NodeName, part: PartHealth) -> NodeFault:
    tested = (
        ""
        if part.test_from is None
        else f"; it is tested from {part.test_from} on, and takes work again once it passes"
    )
    state: FaultState = part.state if part.state != "well" else "suspect"
    return NodeFault(node, part.part, state, part.reason + tested, "health", part.since, part.until)
