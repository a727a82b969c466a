"""What is out of order, on one page: the server, Git and the backend, nodes and GPUs, agents, and what was alerted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Final

from fastapi import APIRouter, Request, Response

from reconciler.access.rights import Rights
from reconciler.api.agent_payloads import AgentView
from reconciler.api.agent_routes import agent_views
from reconciler.api.alert_views import webhook_views
from reconciler.api.problems import NotReadyError
from reconciler.api.services import Services
from reconciler.control.control import NoPolicyError
from reconciler.documents.operations import Operations
from reconciler.model.job_record import JobRecord
from reconciler.protocols.history import KeptEvent
from reconciler.web.alert_log import AlertLine, alert_lines
from reconciler.web.cluster_summary import rack_label
from reconciler.web.conditions import conditions_of, is_in_order
from reconciler.web.node_faults import NodeFault
from reconciler.web.node_sight import NodeSight, NodeSights
from reconciler.web.page_route import PageRoute
from reconciler.web.pages import page
from solver.model.workload import JobName, QueueName

ROWS_MAX: Final = 200
ALERTS_MAX: Final = 50
EVENTS_BACK: Final = 2_000
"""Events among which alerts are looked for; on a busy cluster most say that a job began or ended."""


@dataclass(frozen=True, slots=True)
class NodeFigures:
    """Nodes and GPUs in figures. `closed`: nodes on which no job begins; `suspect`: others with something against them.

    `gpus_closed` of `gpus` take no new job, by themselves or with their node; `alone`: by themselves.
    """

    nodes: int
    closed: int
    suspect: int
    gpus: int
    gpus_closed: int
    alone: int

    @classmethod
    def of(cls, sight: NodeSight) -> NodeFigures:
        """As things stand."""
        closed, alone, gpus_closed = 0, 0, 0
        for name, faults in sight.faults.items():
            if any(fault.closes and not fault.part for fault in faults):
                closed += 1
                gpus_closed += len(sight.index.nodes[name].gpus)
            else:
                parts = len({fault.part for fault in faults if fault.closes})
                alone += parts
                gpus_closed += parts
        total = sum([len(node.gpus) for node in sight.index.nodes.values()])
        suspect = len(sight.faults) - closed
        return cls(len(sight.index.nodes), closed, suspect, total, gpus_closed, alone)


class HealthPages:
    """The endpoint; `router` has it."""

    def __init__(self, services: Services, sights: NodeSights) -> None:
        self._services, self._sights = services, sights
        self._reading = Lock()
        self._events: tuple[int, tuple[KeptEvent, ...]] = 0, ()
        self.router = APIRouter(route_class=PageRoute, include_in_schema=False)
        self.router.add_api_route("/health", self.health)

    def health(self, request: Request) -> Response:
        """How all of it stands."""
        rights: Rights = request.state.rights
        status, conditions = self._services.status(), conditions_of(self._services)
        sight = self._sight()
        faults = [fault for each in sight.faults.values() for fault in each] if sight else []
        of_nodes, of_gpus = [f for f in faults if not f.part], [f for f in faults if f.part]
        agents = self._agents()
        policies = self._operations().alerts
        alerts = self._alerts(rights)
        return page(
            request,
            "health.html",
            conditions=[(each, is_in_order(each)) for each in conditions],
            amiss=sum(not is_in_order(each) for each in conditions),
            status=status,
            figures=NodeFigures.of(sight) if sight else None,
            of_nodes=_with_racks(of_nodes[:ROWS_MAX], sight),
            of_gpus=_with_racks(of_gpus[:ROWS_MAX], sight),
            counts=(len(of_nodes), len(of_gpus)),
            agents=None if agents is None else [each for each in agents if _is_notable(each)][:ROWS_MAX],
            agent_states=Counter(each.state for each in agents or ()),
            webhooks=tuple(webhook_views(policies, self._services.alerts.standings())),
            alerts=alerts[:ALERTS_MAX],
            open_alerts=sum(line.is_open is True for line in alerts),
            events_back=EVENTS_BACK,
            rows_max=ROWS_MAX,
        )

    def _sight(self) -> NodeSight | None:
        """None: no pass has looked at the nodes yet. What else there is to say is said all the same."""
        try:
            return self._sights.latest()
        except NotReadyError:
            return None

    def _agents(self) -> list[AgentView] | None:
        """None: nodes have none here."""
        desk = self._services.agents
        if desk is None:
            return None
        return list(agent_views(desk.agents.agents(), desk.agents.invitations(), self._services.clock.now()))

    def _operations(self) -> Operations:
        try:
            return self._services.operations()
        except NoPolicyError:
            return Operations()

    def _alerts(self, rights: Rights) -> list[AlertLine]:
        """What was alerted lately, of jobs only those that the user may see."""
        policies = self._operations().alerts
        if not any(policy.enabled for policy in policies):
            return []
        events = self._newest_events()
        records = self._services.jobs.named({JobName(kept.event.subject) for kept in events})
        parents: dict[QueueName, QueueName | None] = {q.name: q.parent for q in self._services.policy()[1].queues}
        lines = alert_lines(events, records.get, policies, self._services.alerts.standings(), parents)
        return [line for line in lines if line.job is None or _may_see(rights, line.job)]

    def _newest_events(self) -> tuple[KeptEvent, ...]:
        """Read again once there is a newer one."""
        newest = self._services.history.newest_event()
        with self._reading:
            if self._events[0] != newest:
                since = max(0, newest - EVENTS_BACK)
                self._events = newest, self._services.history.events_since(since, limit=EVENTS_BACK)
            return self._events[1]


def _may_see(rights: Rights, job: JobRecord) -> bool:
    return rights.may("see-job", job.spec.queue, job.user)


def _is_notable(agent: AgentView) -> bool:
    """All others have joined, and their certificates are good."""
    return agent.state != "joined" or agent.invited_until is not None


def _with_racks(faults: Iterable[NodeFault], sight: NodeSight | None) -> Sequence[tuple[NodeFault, str]]:
    return [(fault, rack_label(sight.index.nodes[fault.node])) for fault in faults] if sight else ()
