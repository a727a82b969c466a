"""What the API answers about agents of nodes."""

from __future__ import annotations

from typing import Literal

from reconciler.api.payloads import Payload
from solver.model.cluster import NodeName
from solver.model.document import Document
from solver.model.quantities import Instant

AgentState = Literal["invited", "joined", "expired", "revoked"]


class AgentTokenAsked(Document, frozen=True):
    """Until when a token is good: a span from now, a time, or "" for an hour."""

    until: str = ""


class AgentToken(Payload, frozen=True, kw_only=True):
    """A token with which one agent may join as this node, once. It is never shown again."""

    node: NodeName
    token: str
    until: Instant


class AgentView(Document, frozen=True, omit_defaults=False):
    """Whether a node has an agent, as far as certificates say; whether it is heard of, the node says.

    `state`: invited: there is a token, and no agent yet; expired: the newest certificate ended, at `until`; revoked: none counts.
    `invited_until`: there is an unused token, good until then.
    """

    node: NodeName
    state: AgentState
    joined_at: Instant | None = None
    renewed_at: Instant | None = None
    until: Instant | None = None
    revoked_at: Instant | None = None
    revoked_by: str = ""
    invited_until: Instant | None = None


class AgentList(Payload, frozen=True, kw_only=True):
    """The nodes that have, had or may get an agent, by name."""

    items: tuple[AgentView, ...]
