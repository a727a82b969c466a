"""The protocol that keeps what is known of nodes' health; its conformance suite is tests/contracts/test_node_health.py."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from reconciler.model.health_record import NodeHealth
from reconciler.protocols.backend import Epoch
from solver.model.cluster import NodeName
from solver.model.quantities import Instant


class NodeHealths(Protocol):
    """One record for each node of which anything is remembered."""

    def all(self) -> tuple[NodeHealth, ...]:
        """Every record, sorted by node."""

    def keep(self, epoch: Epoch, records: Iterable[NodeHealth]) -> None:
        """All of these at once, each in place of that of its node; one without findings goes. Raises StaleEpochError.

        `forgiven_at` is kept as it is: it is not the leader's to write.
        """

    def forgive(self, node: NodeName, at: Instant) -> NodeHealth | None:
        """A user lets a node take work again; returns what was known of it, None where nothing was."""
