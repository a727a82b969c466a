"""What people do about agents: let a node join, and take that back."""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.backends.baremetal.authority import CertificateAuthority
from reconciler.backends.baremetal.join_token import new_token
from reconciler.protocols.agents import Agents, Invitation
from solver.model.cluster import NodeName
from solver.model.quantities import Instant


@dataclass(frozen=True, slots=True)
class AgentDesk:
    """Any thread may call it. Methods raise StoreUnusableError, KeyFileError."""

    agents: Agents
    authority: CertificateAuthority

    def invite(self, node: NodeName, by: str, now: Instant, until: Instant) -> str:
        """A token with which one agent may join as this node, once. The store has its hash alone: it can't be shown again."""
        token = new_token(node, self.authority.pin)
        self.agents.invite(Invitation(token.hash, node, by, now, until))
        return str(token)
