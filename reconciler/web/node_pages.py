"""Nodes as a list that can be narrowed down, and a page of each: its GPUs and their holders, and what speaks against it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Annotated, Final, Literal, NamedTuple, get_args
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response

from reconciler.access.rights import Rights
from reconciler.api.agent_payloads import AgentView
from reconciler.api.agent_routes import agent_views
from reconciler.api.payloads import NodeView
from reconciler.api.problems import RequestRefusedError
from reconciler.api.services import Services
from reconciler.api.views import node_views
from reconciler.model.health_record import NodeHealth
from reconciler.model.intervention_record import Ending
from reconciler.model.problem import did_you_mean
from reconciler.protocols.history import Event
from reconciler.web.cluster_summary import NO_RACK, rack_label
from reconciler.web.gpu_rows import WIDTH, gpu_rows
from reconciler.web.node_faults import NodeFault
from reconciler.web.node_sight import NodeSight, NodeSights
from reconciler.web.page_route import PageRoute
from reconciler.web.pages import page
from solver.model.cluster import Node, NodeName
from solver.model.quantities import MILLI_PER_GPU
from solver.model.workload import Job, JobName

PAGE: Final = 50
EVENTS: Final = 100
JOBS_NAMED: Final = 3

_OF_NODES: Final = frozenset({"cordoned", "uncordoned", "agent-invited", "agent-joined", "agent-revoked"})
_ENDED: Final = frozenset(get_args(Ending))
"""Events of nodes; those of their health have a name that says so."""

NodeState = Literal["well", "out of order", "not ready", "cordoned", "drained", "suspect"]


class NodeFilter(NamedTuple):
    """What a list of nodes is narrowed down to; "" lets everything through."""

    rack: str = ""
    gpu_type: str = ""
    state: NodeState | Literal[""] = ""
    prefix: str = ""


class NodeLine(NamedTuple):
    """A node of the list. `held` in thousandths of GPUs; `jobs`: the first of `job_count`."""

    node: Node
    rack: str
    held: int
    total: int
    jobs: tuple[Job, ...]
    job_count: int
    faults: tuple[NodeFault, ...]


class NodePages:
    """The endpoints; `router` has them all."""

    def __init__(self, services: Services, sights: NodeSights) -> None:
        self._services, self._sights = services, sights
        self.router = APIRouter(route_class=PageRoute, include_in_schema=False)
        self.router.add_api_route("/nodes", self.nodes)
        self.router.add_api_route("/nodes/{node}", self.node)

    def nodes(
        self,
        request: Request,
        rack: Annotated[str, Query(max_length=300)] = "",
        type: Annotated[str, Query(max_length=200)] = "",  # noqa: A002  (its name in the address)
        state: Annotated[NodeState | Literal[""], Query()] = "",
        prefix: Annotated[str, Query(max_length=253)] = "",
        page_number: Annotated[int, Query(ge=1, le=100_000, alias="page")] = 1,
    ) -> Response:
        """The nodes that are asked for, rack by rack, page by page."""
        sight, asked = self._sights.latest(), NodeFilter(rack.strip(), type, state, prefix.strip())
        found = matching(sight, asked)
        shown = found[(page_number - 1) * PAGE : page_number * PAGE]
        rights: Rights = request.state.rights
        is_rack = asked == NodeFilter(asked.rack) and asked.rack in sight.index.racks and asked.rack != NO_RACK
        return page(
            request,
            "nodes.html",
            lines=[_line(sight, name) for name in shown],
            count=len(found),
            first=(page_number - 1) * PAGE + 1,
            asked=asked,
            types=sorted({node.gpu_type for node in sight.index.nodes.values()}),
            states=get_args(NodeState),
            newer=_address(asked, page_number - 1) if page_number > 1 else "",
            older=_address(asked, page_number + 1) if page_number * PAGE < len(found) else "",
            may_see=_seer(rights),
            whole_rack=asked.rack if is_rack and rights.may("operate", None) else "",
            time=sight.index.snapshot.time,
        )

    def node(self, node: str, request: Request) -> Response:
        """One node."""
        sight, name = self._sights.latest(), NodeName(node)
        known = sight.index.nodes.get(name)
        if known is None:
            fix = did_you_mean(node, sight.index.nodes) or "The list of nodes has all there are."
            raise RequestRefusedError(404, "unknown-node", f"There is no node {node}.", fix)
        rights: Rights = request.state.rights
        tasks, kept = sight.index.tasks.get(name, ()), sight.index.kept.get(name, ())
        faults = sight.faults.get(name, ())
        events = [event for event in self._services.history.events(name, EVENTS)[::-1] if _is_of_node(event)]
        return page(
            request,
            "node.html",
            node=known,
            rack=rack_label(known),
            view=_view(sight, name),
            held=sight.index.held.get(name, 0),
            total=int(MILLI_PER_GPU) * len(known.gpus),
            faults=faults,
            gpus=tuple(gpu_rows(known, tasks, kept, faults)),
            beside=[each for each in tasks if not each.task.gpus],
            kept=kept,
            width=WIDTH,
            health=sight.evidence.health.get(name, NodeHealth(name)),
            facts=sight.sighted.facts.get(name),
            agent=self._agent(name),
            events=events,
            may_see=_seer(rights),
            visible_holders=self._visible(rights, {each.holder for each in kept if not each.document}),
            may_operate=rights.may("operate", None),
            is_closed=any(fault.state in ("cordoned", "drained") for fault in faults),
            time=sight.index.snapshot.time,
        )

    def _agent(self, name: NodeName) -> AgentView | None:
        """How its agent's certificate stands; None where there are no agents, or it never had one."""
        desk = self._services.agents
        record = desk.agents.agent(name) if desk is not None else None
        return next(agent_views((record,), (), self._services.clock.now())) if record is not None else None

    def _visible(self, rights: Rights, names: Collection[JobName]) -> frozenset[JobName]:
        """The jobs of these that the user may see."""
        records = self._services.jobs.named(names)
        return frozenset(
            name for name, record in records.items() if rights.may("see-job", record.spec.queue, record.user)
        )


def matching(sight: NodeSight, asked: NodeFilter) -> list[NodeName]:
    """The nodes that are asked for, in their order. A rack is named, or a part of its name is."""
    racks = sight.index.racks
    chosen = [asked.rack] if asked.rack in racks else [label for label in racks if asked.rack in label]
    names = (name for label in chosen for name in racks[label])
    return [name for name in names if _is_asked_for(sight, sight.index.nodes[name], asked)]


def _is_asked_for(sight: NodeSight, node: Node, asked: NodeFilter) -> bool:
    if not node.name.startswith(asked.prefix) or asked.gpu_type not in ("", node.gpu_type):
        return False
    faults = sight.faults.get(node.name, ())
    match asked.state:
        case "":
            return True
        case "well":
            return not faults
        case "out of order":
            return bool(faults)
        case state:
            return any(fault.state == state for fault in faults)


def _line(sight: NodeSight, name: NodeName) -> NodeLine:
    node = sight.index.nodes[name]
    jobs = {each.job.name: each.job for each in sight.index.tasks.get(name, ())}
    return NodeLine(
        node,
        rack_label(node),
        sight.index.held.get(name, 0),
        int(MILLI_PER_GPU) * len(node.gpus),
        tuple(jobs.values())[:JOBS_NAMED],
        len(jobs),
        sight.faults.get(name, ()),
    )


def _view(sight: NodeSight, name: NodeName) -> NodeView:
    evidence = sight.evidence
    (view,) = node_views(sight.index.part((name,)), evidence.cordons, evidence.health, {})
    return view


def _is_of_node(event: Event) -> bool:
    """A job may have the name of a node: what happened to it is for those who may see the job."""
    if event.kind in _ENDED:
        return event.cause.startswith(("cordon by ", "the node is ", "the policy repository cordons "))
    return event.kind.startswith("node-") or event.kind in _OF_NODES


def _seer(rights: Rights) -> Callable[[Job], bool]:
    """Says whether the user may see a job: others are named, as the API names them, and lead nowhere."""
    return lambda job: rights.may("see-job", job.spec.queue, job.user)


def _address(asked: NodeFilter, page_number: int) -> str:
    return "/nodes?" + urlencode(list(_stated(asked, page_number)))


def _stated(asked: NodeFilter, page_number: int) -> Iterator[tuple[str, str]]:
    named = (("rack", asked.rack), ("type", asked.gpu_type), ("state", asked.state), ("prefix", asked.prefix))
    yield from ((name, value) for name, value in named if value)
    if page_number > 1:
        yield "page", str(page_number)
