"""Puts on record which GPUs there are and what those are that no job holds: of each pass what has changed since the one before."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from reconciler.protocols.backend import Epoch
from reconciler.protocols.capacity import Capacities, DeviceState, NodeCapacity
from solver.model.cluster import DeviceId, Node, NodeName
from solver.model.quantities import Duration
from solver.model.snapshot import Snapshot
from solver.model.workload import TaskPlacement

WATCH_GAP: Final = Duration(180_000)
"""Longer than it takes another to lead: within that time what has changed is seen, if a little late."""


class CapacityRecorder:
    """Remembers between passes what is on record, and under which epoch: whatever another leader wrote is read first."""

    def __init__(self, capacities: Capacities) -> None:
        self._capacities = capacities
        self._epoch: Epoch | None = None
        self._known: dict[NodeName, NodeCapacity] = {}
        self._seen: dict[NodeName, tuple[Node, Mapping[DeviceId, DeviceState]]] = {}

    def keep(self, epoch: Epoch, snapshot: Snapshot) -> None:
        """What this pass sees is so from its time on. Raises StaleEpochError."""
        if epoch != self._epoch:
            self._known, self._seen = self._capacities.current(), {}
            self._capacities.watch(epoch, snapshot.time, WATCH_GAP)
        kept = _kept(snapshot)
        seen = {node.name: (node, kept.get(node.name, _NOTHING)) for node in snapshot.nodes if node.gpus}
        # Of 12,500 nodes nearly all are the very objects that the pass before saw.
        new = {
            name: capacity
            for name, (node, states) in seen.items()
            if not ((before := self._seen.get(name)) and before[0] is node and before[1] == states)
            and (capacity := _capacity(node, states)) != self._known.get(name)
        }
        changed: dict[NodeName, NodeCapacity | None] = {
            **new,
            **{name: None for name in self._known if name not in seen},
        }
        self._epoch = None  # what a failed write leaves is read again
        self._capacities.keep(epoch, changed, snapshot.time)
        self._known = {name: has for name, has in (self._known | new).items() if name in seen}
        self._seen, self._epoch = seen, epoch


_NOTHING: Mapping[DeviceId, DeviceState] = {}


def _capacity(node: Node, kept: Mapping[DeviceId, DeviceState]) -> NodeCapacity:
    well = node.schedulable
    states: Iterator[DeviceState] = (
        kept.get(gpu.id, "idle") if well and gpu.healthy else "unhealthy" for gpu in node.gpus
    )
    return NodeCapacity(node.pool, node.gpu_type, tuple(gpu.id for gpu in node.gpus), tuple(states))


def _kept(snapshot: Snapshot) -> dict[NodeName, dict[DeviceId, DeviceState]]:
    """Of nodes the GPUs that are kept whole for somebody, or being partitioned.

    What a Reservation keeps from later on may be used until then: it is idle.
    """
    found = defaultdict[NodeName, dict[DeviceId, DeviceState]](dict)
    for task in _promised(snapshot):
        if task.mig is None and task.share is None:
            found[task.node] |= dict.fromkeys(task.devices, "reserved")
    for asked in snapshot.in_flight.repartitions:
        found[asked.node][asked.device] = "partitioning"
    return found


def _promised(snapshot: Snapshot) -> Iterable[TaskPlacement]:
    for intent in snapshot.in_flight.nominations:
        yield from intent.tasks
    for reservation in snapshot.in_flight.reservations:
        if reservation.start <= snapshot.time and not reservation.is_over(snapshot.time):
            yield from reservation.tasks
