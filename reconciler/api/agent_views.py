"""How agents stand, made of what the store says of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from reconciler.api.agent_payloads import AgentView
from reconciler.protocols.agents import AgentRecord, Invitation
from solver.model.quantities import Instant


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
