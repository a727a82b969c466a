"""Nodes as they stand now: what the last pass saw, and what people and health checks have said since; worked out once for all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock

from reconciler.api.services import Services
from reconciler.control.control import NoPolicyError
from reconciler.control.islands import contradictions, reported_cliques
from reconciler.lifecycle.interventions.effects import about
from reconciler.lifecycle.jobs.backend_reports import BackendReports
from reconciler.web.node_faults import NodeEvidence, NodeFault
from reconciler.web.node_index import NodeRows
from solver.model.cluster import Node, NodeName


@dataclass(frozen=True, slots=True)
class NodeSight:
    """`faults`: by node, in the order of the index; nodes without any are left out. `sighted`: what the backend said."""

    index: NodeRows
    evidence: NodeEvidence
    faults: Mapping[NodeName, tuple[NodeFault, ...]]
    sighted: BackendReports


class NodeSights:
    """Of one server. Any thread may ask; one works, the others wait for what it finds.

    Whatever is done by hand or found by a health check is an event: as long as there is no newer one, and no newer pass, what was
    worked out holds.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._working = Lock()
        self._latest: tuple[int, NodeSight] | None = None

    def latest(self) -> NodeSight:
        """As of now. Raises NotReadyError."""
        number, snapshot = self._services.history.newest_event(), self._services.snapshot()
        with self._working:
            if self._latest is None or self._latest[0] != number or self._latest[1].index.snapshot is not snapshot:
                known = self._latest[1].index if self._latest else None
                index = known if known and known.snapshot is snapshot else NodeRows.of(snapshot)
                self._latest = number, self._worked_out(index)
            return self._latest[1]

    def _worked_out(self, index: NodeRows) -> NodeSight:
        sighted, now = self._services.sighted(), self._services.clock.now()
        records = {record.node: record for record in self._services.health.all()}
        cordons = about(self._services.interventions.in_force(), "cordon", "node", now)
        evidence = NodeEvidence(
            now=now,
            declared=self._declared(),
            seen=sighted.nodes,
            health=records,
            cordons=cordons,
            changing=index.changing,
            nvlink=contradictions(index.snapshot.nodes, reported_cliques(sighted.facts)),
        )
        changing = {asked.node for asked in index.changing.values()}
        likely = {*index.unfit, *records, *(NodeName(name) for name in cordons), *changing, *evidence.nvlink}
        found = ((name, evidence.faults(index.nodes[name])) for name in index.nodes if name in likely)
        return NodeSight(index, evidence, {name: faults for name, faults in found if faults}, sighted)

    def _declared(self) -> dict[NodeName, Node]:
        try:
            return {node.name: node for node in self._services.following.planning.in_force().nodes}
        except NoPolicyError:
            return {}
