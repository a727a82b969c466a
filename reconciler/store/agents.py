"""Agents of nodes and invitations to become one, in SQL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, bindparam, delete, insert, or_, select, update

from reconciler.protocols.agents import AgentRecord, AgentRevokedError, Invitation, NotInvitedError, refusal
from reconciler.store.database import Database
from reconciler.store.tables import agent_invitations, agents, leadership
from solver.model.cluster import NodeName
from solver.model.quantities import Instant

_OF_NODE = select(agents).where(agents.c.node == bindparam("node"))
"""Asked at each connection of an agent, and all of them may come at once: building it anew would take longer than the answer."""

_GENERATIONS = select(agents.c.node, agents.c.generation)


class SqlAgents:
    """Implements Agents."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def invite(self, invitation: Invitation) -> None:
        """Keep it, in place of the one of its node."""
        table = agent_invitations.c
        with self._database.writing() as connection:
            _one_at_a_time(connection)
            over = or_(table.node == invitation.node, table.until <= invitation.at)
            connection.execute(delete(agent_invitations).where(over))
            connection.execute(insert(agent_invitations).values(msgspec.structs.asdict(invitation)))

    def join(self, token_hash: str, node: NodeName, key: str, now: Instant, until: Instant) -> AgentRecord:
        """Use an invitation, and begin the node's next generation."""
        with self._database.writing() as connection:
            _one_at_a_time(connection)
            row = connection.execute(
                select(agent_invitations).where(agent_invitations.c.token_hash == token_hash)
            ).one_or_none()
            invitation = _invitation(row) if row else None
            problem = refusal(invitation, node, key, now)
            if problem:
                raise NotInvitedError(problem)
            before = _find(connection, node)
            if before is not None and invitation is not None and invitation.key == key:
                return before
            agent = AgentRecord(node, before.generation + 1 if before else 1, now, now, until)
            used = update(agent_invitations).where(agent_invitations.c.token_hash == token_hash)
            connection.execute(used.values(key=key))
            connection.execute(delete(agents).where(agents.c.node == node))
            connection.execute(insert(agents).values(msgspec.structs.asdict(agent)))
        return agent

    def renew(self, node: NodeName, generation: int, now: Instant, until: Instant) -> None:
        """Another certificate of this generation is given out."""
        counts = agents.c.node == node, agents.c.generation == generation, agents.c.revoked_at.is_(None)
        with self._database.writing() as connection:
            renewed = update(agents).where(*counts).values(renewed_at=now, until=until)
            if connection.execute(renewed).rowcount == 0:
                raise AgentRevokedError(f"the certificate of node {node} counts no more")

    def revoke(self, node: NodeName, at: Instant, by: str) -> AgentRecord | None:
        """Nothing given to the node so far counts any more."""
        with self._database.writing() as connection:
            _one_at_a_time(connection)
            connection.execute(delete(agent_invitations).where(agent_invitations.c.node == node))
            found = _find(connection, node)
            if found is None or found.revoked_at is not None:
                return found
            revoked = msgspec.structs.replace(found, generation=found.generation + 1, revoked_at=at, revoked_by=by)
            connection.execute(update(agents).where(agents.c.node == node).values(msgspec.structs.asdict(revoked)))
        return revoked

    def agent(self, node: NodeName) -> AgentRecord | None:
        """The agent of a node."""
        with self._database.reading() as connection:
            return _find(connection, node)

    def agents(self) -> tuple[AgentRecord, ...]:
        """All of them, by node."""
        with self._database.reading() as connection:
            return tuple(map(_agent, connection.execute(select(agents).order_by(agents.c.node)).all()))

    def generations(self) -> Mapping[NodeName, int]:
        """Which certificates of each node count."""
        with self._database.reading() as connection:
            return dict(connection.execute(_GENERATIONS).all())

    def invitations(self) -> tuple[Invitation, ...]:
        """Unused ones, by node."""
        unused = select(agent_invitations).where(agent_invitations.c.key == "").order_by(agent_invitations.c.node)
        with self._database.reading() as connection:
            return tuple(map(_invitation, connection.execute(unused).all()))


def _one_at_a_time(connection: Connection) -> None:
    """Two uses of the same token at once come one after the other."""
    connection.execute(select(leadership.c.epoch).with_for_update())


def _find(connection: Connection, node: NodeName) -> AgentRecord | None:
    row = connection.execute(_OF_NODE, {"node": node}).one_or_none()
    return _agent(row) if row else None


def _agent(row: Row[Any]) -> AgentRecord:
    times = {name: Instant(getattr(row, name)) for name in ("joined_at", "renewed_at", "until")}
    revoked_at = None if row.revoked_at is None else Instant(row.revoked_at)
    return AgentRecord(**row._asdict() | times | {"revoked_at": revoked_at})


def _invitation(row: Row[Any]) -> Invitation:
    return Invitation(**row._asdict() | {"at": Instant(row.at), "until": Instant(row.until)})
