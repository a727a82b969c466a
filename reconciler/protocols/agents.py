"""The protocol that says which nodes have an agent, and which tokens make one; its suite is tests/contracts/test_agents.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from solver.model.cluster import NodeName
from solver.model.document import Document
from solver.model.quantities import Instant


class AgentRecord(Document, frozen=True):
    """The agent of a node. Certificates carry the `generation` they were given in: older ones than this count no more.

    `until`: when the newest certificate ends. `revoked_at`: since when there is none that counts; absent while there is.
    """

    node: NodeName
    generation: int
    joined_at: Instant
    renewed_at: Instant
    until: Instant
    revoked_at: Instant | None = None
    revoked_by: str = ""


class Invitation(Document, frozen=True):
    """A machine with the token of this `token_hash` may become the agent of `node`, once, before `until`.

    `key`: fingerprint of the key that did so; "": none yet.
    """

    token_hash: str
    node: NodeName
    by: str
    at: Instant
    until: Instant
    key: str = ""


class NotInvitedError(Exception):
    """A token does not let its holder join; the message says why. A person must make another one."""


class AgentRevokedError(Exception):
    """The certificates of an agent count no more. It has to join again, if it is let."""


class Agents(Protocol):
    """At most one agent for a node. Any control plane on the store may write."""

    def invite(self, invitation: Invitation) -> None:
        """Keep an invitation, in place of the one of its node; those of others past their time are dropped."""

    def join(self, token_hash: str, node: NodeName, key: str, now: Instant, until: Instant) -> AgentRecord:
        """Use an invitation: what the node had before counts no more. The same again, by hash and key, changes nothing.

        Raises NotInvitedError.
        """

    def renew(self, node: NodeName, generation: int, now: Instant, until: Instant) -> None:
        """Put on record that the agent is given another certificate. Raises AgentRevokedError."""

    def revoke(self, node: NodeName, at: Instant, by: str) -> AgentRecord | None:
        """No certificate or invitation of the node counts any more; repeated, the first time stays. None: it has no agent."""

    def agent(self, node: NodeName) -> AgentRecord | None:
        """The agent of a node, also a revoked one; None: no machine ever joined as this node."""

    def agents(self) -> tuple[AgentRecord, ...]:
        """All of them, by node."""

    def generations(self) -> Mapping[NodeName, int]:
        """Which certificates of each node count: those of this generation. Cheap enough to be asked all the time."""

    def invitations(self) -> tuple[Invitation, ...]:
        """Unused ones, by node, also past their time."""


def refusal(invitation: Invitation | None, node: NodeName, key: str, now: Instant) -> str:
    """Why an invitation does not let the holder of this key become the agent of this node; "": it does."""
    if invitation is None:
        return "there is no such token: it was replaced by a newer one, revoked, or made by another control plane"
    if invitation.node != node:
        return f"the token is for node {invitation.node}, and {node} asks"
    if now >= invitation.until:
        return f"the token was good until {invitation.until}"
    if invitation.key not in ("", key):
        return "the token was used before, with another key"
    return ""
