"""Identities of control planes and agents: signs certificates, and says which node has one and whether it counts."""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Iterable
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from reconciler.backends.baremetal.authority_file import AuthorityFile
from reconciler.backends.baremetal.certificates import (
    LIFE,
    CertificateError,
    NodeIdentity,
    ends_at,
    fingerprint,
    identity_of,
    key_pem,
    made_at,
    new_key,
    node_certificate,
    pem_of,
    server_certificate,
)
from reconciler.backends.baremetal.read_buffers import keep_read_buffers_small
from reconciler.backends.baremetal.roots import SigningRoots, signing_roots
from reconciler.model.clock import Clock
from reconciler.protocols.agents import AgentRecord, Agents
from solver.model.cluster import NodeName
from solver.model.quantities import Duration, Instant


class UntrustedError(Exception):
    """A certificate does not say that its holder is a node: it is another authority's, expired, revoked, or no node's."""


class _Serving(NamedTuple):
    """A TLS context, the authorities it trusts, and from when on another is to be made."""

    context: ssl.SSLContext
    trusted: tuple[x509.Certificate, ...]
    until: Instant


class CertificateAuthority:
    """Any thread may ask. What it is asked about agents it reads in the store, at each call.

    Every method raises KeyFileError where the authority's file can't be used.
    """

    def __init__(self, file: AuthorityFile, agents: Agents, clock: Clock) -> None:
        self._file = file
        self._agents = agents
        self._clock = clock
        self._serving: _Serving | None = None

    @property
    def ca_certificate(self) -> bytes:
        """The certificates of the authorities that are trusted now, as PEM; the one that signs comes first."""
        return pem_of(*self._standing().trusted)

    @property
    def pin(self) -> str:
        """Fingerprint of the authority that signs now: what a join token tells an agent to believe."""
        return fingerprint(self._standing().signing.certificate)

    def server_context(self) -> ssl.SSLContext:
        """For the agents' port. A client may come without a certificate, to join; with one, it is of an authority trusted here.

        So a server of anything but joining asks `identity_of` about the certificate, and refuses clients without one. The context
        looks after itself: each connection gets the control plane's newest certificate and the authorities trusted then.
        """
        keep_read_buffers_small()
        context = _context()

        def newest(connection: ssl.SSLObject | ssl.SSLSocket, _: str | None, __: ssl.SSLContext) -> None:
            connection.context = self._current()

        context.sni_callback = newest
        self._current()
        return context

    def node_of(self, certificate: bytes) -> NodeName:
        """The node that a certificate (DER) speaks for. Raises UntrustedError."""
        return self.identity_of(certificate).node

    def identity_of(self, certificate: bytes) -> NodeIdentity:
        """The same with its generation and end, to be asked about later with `no_longer`. Raises UntrustedError."""
        try:
            read = x509.load_der_x509_certificate(certificate)
        except ValueError as error:
            raise UntrustedError("the certificate can't be read") from error
        identity = self.signed(read, Duration(0))
        problem = why_not(identity, self._agents.agent(identity.node), self._clock.now())
        if problem:
            raise UntrustedError(problem)
        return identity

    def no_longer(self, connected: Iterable[NodeIdentity]) -> dict[NodeIdentity, str]:
        """Those that were trusted when they connected and are not any more, each with the reason.

        Asked of all agents every few seconds: only of those that are not trusted is more read than a number.
        """
        generations, now = self._agents.generations(), self._clock.now()
        doubtful = [
            identity
            for identity in connected
            if now >= identity.until or generations.get(identity.node) != identity.generation
        ]
        problems = {identity: why_not(identity, self._agents.agent(identity.node), now) for identity in doubtful}
        return {identity: problem for identity, problem in problems.items() if problem}

    def signed(self, certificate: x509.Certificate, late: Duration) -> NodeIdentity:
        """Which node a trusted authority says this is, up to so long after the certificate's end. Raises UntrustedError.

        Whether it was revoked is not asked.
        """
        now = self._clock.now()
        if not any(_signed_by(certificate, root) for root in self._standing().trusted):
            raise UntrustedError("the certificate is not signed by an authority that is trusted here")
        try:
            identity = identity_of(certificate)
        except CertificateError as error:
            raise UntrustedError(f"the certificate: {error}") from error
        if now >= identity.until.after(late):
            raise UntrustedError(f"the certificate of node {identity.node} ended at {identity.until}")
        return identity

    def issue(self, request: x509.CertificateSigningRequest, generation: int) -> bytes:
        """Sign a node's request, as PEM. Whether it may have a certificate was asked before. Raises CertificateError."""
        root = self._standing().signing
        return pem_of(node_certificate(root.certificate, root.key, request, generation, self._clock.now()))

    def _standing(self) -> SigningRoots:
        return signing_roots(self._file.roots(), self._clock.now())

    def _current(self) -> ssl.SSLContext:
        now, stands = self._clock.now(), self._standing()
        serving = self._serving
        if serving is None or now >= serving.until or serving.trusted != stands.trusted:
            serving = self._serving = _Serving(self._made(stands, now), stands.trusted, now.after(LIFE // 2))
        return serving.context

    @staticmethod
    def _made(stands: SigningRoots, now: Instant) -> ssl.SSLContext:
        key, context = new_key(), _context()
        own = server_certificate(stands.signing.certificate, stands.signing.key, key.public_key(), now)
        # The library reads keys from files alone. This one is its owner's, and gone with the block.
        with tempfile.NamedTemporaryFile("wb", prefix="quorate-") as file:
            file.write(key_pem(key) + pem_of(own))
            file.flush()
            context.load_cert_chain(file.name)
        context.load_verify_locations(cadata=pem_of(*stands.trusted).decode())
        return context


def why_not(identity: NodeIdentity, agent: AgentRecord | None, now: Instant) -> str:
    """Why what a certificate says does not count (any more); "": it does."""
    if now >= identity.until:
        return f"the certificate of node {identity.node} ended at {identity.until}"
    if agent is None:
        return f"no agent has joined as node {identity.node}"
    if identity.generation == agent.generation:
        return ""
    if identity.generation > agent.generation:
        # As after the store was restored from a backup.
        return f"the certificate of node {identity.node} is newer than anything the store knows of it"
    if agent.revoked_at is not None:
        return f"the certificate of node {identity.node} was revoked by {agent.revoked_by} at {agent.revoked_at}"
    return f"another agent has joined as node {identity.node} since, at {agent.joined_at}"


def _signed_by(certificate: x509.Certificate, root: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(root)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return made_at(certificate) <= ends_at(root)


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_OPTIONAL
    # A resumed session would skip the certificate: an agent that comes back after a revocation or an end has to show it.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    return context
