"""Agents over HTTP: which nodes have one, which may get one, and which have none any more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Depends, Request, Response

from reconciler.api.agent_payloads import AgentList, AgentToken, AgentTokenAsked, AgentView
from reconciler.api.answers import answer, answers, refuses
from reconciler.api.job_routes import bounded_body
from reconciler.api.problems import RequestRefusedError
from reconciler.api.services import Services
from reconciler.backends.baremetal.desk import AgentDesk
from reconciler.lifecycle.interventions.spans import UnfitEndError, read_end
from reconciler.model.problem import did_you_mean
from reconciler.protocols.agents import AgentRecord, Invitation
from reconciler.protocols.history import Event
from solver.model.cluster import NodeName
from solver.model.document import decode
from solver.model.quantities import Duration, Instant

USUAL: Final = Duration(3_600_000)

LONGEST: Final = Duration(168 * USUAL)
"""For how long a token may be good. A machine that gets it before the node uses it has the node's place."""

_BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "content": {
            "application/json": {
                "schema": {"$ref": "#/components/schemas/AgentTokenAsked"},
                "example": {"until": "1h"},
            }
        },
    }
}

Body = Annotated[bytes, Depends(bounded_body)]


class AgentRoutes:
    """The endpoints; `router` has them all."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.router = APIRouter(prefix="/v1/agents", tags=["agents"])
        self.router.add_api_route("", self.list, responses=answers(AgentList, refuses(409)))
        for path, act, kind in (("token", self.invite, AgentToken), ("revoke", self.revoke, AgentList)):
            extra = _BODY if kind is AgentToken else None
            responses = answers(kind, refuses(404, 409, 413))
            self.router.add_api_route(
                f"/{{node}}/{path}", act, methods=["POST"], responses=responses, openapi_extra=extra
            )

    def list(self) -> Response:
        """The nodes that have, had or may get an agent, and how their certificates stand."""
        desk, now = self._desk(), self._services.clock.now()
        return answer(AgentList(items=tuple(agent_views(desk.agents.agents(), desk.agents.invitations(), now))))

    def invite(self, node: str, request: Request, body: Body) -> Response:
        """A token with which one agent may join as this node, once. It takes the place of one made before."""
        desk, now, user = self._desk(), self._services.clock.now(), request.state.user
        known = [each.name for each in self._services.snapshot().nodes]
        if node not in known:
            fix = did_you_mean(node, known) or "Declare it in a NodePool, or list the nodes to see their names."
            raise RequestRefusedError(404, "unknown-node", "There is no node of that name.", fix)
        until = _end(body, now)
        # Before the token is told.
        with self._services.together():
            self._services.history.record_event(Event(now, "agent-invited", node, f"until {until}", user))
            token = desk.invite(NodeName(node), user, now, until)
        return answer(AgentToken(node=NodeName(node), token=token, until=until))

    def revoke(self, node: str, request: Request) -> Response:
        """No certificate or token of this node counts any more. Harmless where that is so already."""
        desk, now, user = self._desk(), self._services.clock.now(), request.state.user
        known = {each.node for each in desk.agents.agents()} | {each.node for each in desk.agents.invitations()}
        if node not in known:
            fix = did_you_mean(node, known) or "List the agents to see their nodes."
            raise RequestRefusedError(404, "unknown-agent", "There is no agent of that name.", fix)
        with self._services.together():
            agent = desk.agents.revoke(NodeName(node), now, user)
            is_new = agent is None or agent.revoked_at == now
            if is_new:
                self._services.history.record_event(Event(now, "agent-revoked", node, "", user))
        if is_new:
            self._services.wake()
        return answer(AgentList(items=tuple(agent_views((agent,) if agent else (), (), now))))

    def _desk(self) -> AgentDesk:
        """Raises RequestRefusedError."""
        if self._services.agents is None:
            fix = "Agents belong to a control plane of many machines."
            raise RequestRefusedError(409, "no-agents", "This control plane has no agents.", fix)
        return self._services.agents


def _end(body: bytes, now: Instant) -> Instant:
    """Until when. Raises RequestRefusedError."""
    try:
        asked = decode(body or b"{}", AgentTokenAsked)
        until = read_end(asked.until, now) if asked.until else now.after(USUAL)
    except msgspec.MsgspecError as error:
        fix = 'Send JSON such as {"until": "1h"}.'
        raise RequestRefusedError(422, "malformed", f"The body is not as described: {error}.", fix) from error
    except UnfitEndError as error:
        raise RequestRefusedError(422, "unfit-end", str(error), error.fix) from error
    if until > now.after(LONGEST):
        raise RequestRefusedError(
            422, "unfit-end", f"A token is good for {LONGEST} at most.", "Make it when it is needed."
        )
    return until


def agent_views(agents: Iterable[AgentRecord], invitations: Iterable[Invitation], now: Instant) -> Iterator[AgentView]:
    """One for each node that has an agent, had one, or may get one, by name."""
    had = {agent.node: agent for agent in agents}
    invited = {each.node: each.until for each in invitations if each.until > now}
    for node in sorted(had.keys() | invited.keys()):
        agent, until = had.get(node), invited.get(node)
        if agent is None:
            yield AgentView(node, "invited", invited_until=until)
        else:
            yield _view(agent, until, now)


def _view(agent: AgentRecord, invited_until: Instant | None, now: Instant) -> AgentView:
    state = "expired" if agent.until <= now else "joined"
    return AgentView(
        agent.node,
        "revoked" if agent.revoked_at is not None else state,  # type: ignore[arg-type]  # one of two literals
        agent.joined_at,
        agent.renewed_at,
        agent.until,
        agent.revoked_at,
        agent.revoked_by,
        invited_until,
    )
