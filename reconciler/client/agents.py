"""What a client asks about agents of nodes."""

from __future__ import annotations

from urllib.parse import quote

from reconciler.api.agent_payloads import AgentList, AgentToken, AgentTokenAsked
from reconciler.client.transport import Transport
from solver.model.document import decode, encode


class AgentCalls:
    """Every method raises ServerUnreachableError, NotAuthorisedError or ApiError."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def all(self) -> AgentList:
        """The nodes that have, had or may get an agent."""
        return decode(self._transport.call("GET", "/v1/agents"), AgentList)

    def token(self, node: str, until: str = "") -> AgentToken:
        """A token with which one agent may join as this node, once: until a span from now or a time, an hour unless stated."""
        asked = encode(AgentTokenAsked(until))
        return decode(self._transport.call("POST", f"{_path(node)}/token", content=asked, repeatable=False), AgentToken)

    def revoke(self, node: str) -> AgentList:
        """Let no certificate or token of this node count any more."""
        return decode(self._transport.call("POST", f"{_path(node)}/revoke"), AgentList)


def _path(node: str) -> str:
    return f"/v1/agents/{quote(node, safe='')}"
