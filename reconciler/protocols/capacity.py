"""Past and present capacity: which GPUs there were on which node, from when to when, and what those were that no job held.

The leader keeps what has changed with each pass, so that the times are those at which it saw a change. What jobs held of GPUs is
not said here: placements say that, and more exactly. Times are milliseconds of the leader's clock. Where that was set back, what
follows begins when what was before it on the same node had begun, so that no two overlap and none is left out.
The conformance suite is tests/contracts/test_capacity.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, Protocol

from reconciler.protocols.backend import Epoch
from solver.model.cluster import DeviceId, GpuType, NodeName
from solver.model.quantities import Duration, Instant

DeviceState = Literal["idle", "reserved", "unhealthy", "partitioning"]
"""What a GPU is as far as no job holds it. `unhealthy`: it, or its node, is not ready, not well or closed to new work.
`reserved`: it is promised to a job, or a Reservation that has begun keeps it. `partitioning`: its MIG instances are being made or
taken away."""


class NodeCapacity(NamedTuple):
    """The GPUs of one node, and what each is while no job holds it."""

    pool: str
    gpu_type: GpuType
    devices: tuple[DeviceId, ...]
    states: tuple[DeviceState, ...]


class CapacitySpan(NamedTuple):
    """What a node had from `since` until `until`; None: it still has."""

    node: NodeName
    since: Instant
    until: Instant | None
    capacity: NodeCapacity


class WatchSpan(NamedTuple):
    """From when to when a leader was there to see changes."""

    since: Instant
    until: Instant


class Capacities(Protocol):
    """What there was of GPUs. A span is in a window if it lasted at a moment of it: since < end, until > start."""

    def keep(self, epoch: Epoch, changed: Mapping[NodeName, NodeCapacity | None], at: Instant) -> None:
        """What these nodes have from `at` on; None: they are gone. Raises StaleEpochError."""

    def current(self) -> dict[NodeName, NodeCapacity]:
        """What each node has."""

    def spans(self, start: Instant, end: Instant) -> tuple[CapacitySpan, ...]:
        """Those in a window, by node and since when."""

    def begun(self) -> Instant | None:
        """Since when anything is on record; None: nothing is."""

    def watch(self, epoch: Epoch, at: Instant, gap: Duration) -> None:
        """A leader is there at an instant, and was since it last said so, unless that was longer ago than `gap`."""

    def watches(self, start: Instant, end: Instant) -> tuple[WatchSpan, ...]:
        """When a leader was there in a window, by since when."""

    def prune(self, epoch: Epoch, before: Instant, limit: int = 500) -> int:
        """Delete what was over before an instant, at most `limit` spans; returns how many. Raises StaleEpochError."""
