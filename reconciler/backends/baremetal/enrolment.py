"""How a node gets its first certificate, by a token, and each next one, by the one it has."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from http import HTTPStatus
from typing import Final

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from websockets.asyncio.server import ServerConnection
from websockets.http11 import Response

from reconciler.backends.baremetal.authority import CertificateAuthority, UntrustedError
from reconciler.backends.baremetal.certificates import (
    LIFE,
    CertificateError,
    NodeIdentity,
    key_fingerprint,
    node_of_request,
    read_request,
)
from reconciler.backends.baremetal.join_token import JoinTokenError, read_token
from reconciler.backends.baremetal.join_wire import (
    MESSAGE_BYTES_MAX,
    Answered,
    Asked,
    Issued,
    JoinAsked,
    NotIssued,
    RenewalAsked,
)
from reconciler.model.clock import Clock
from reconciler.protocols.agents import AgentRevokedError, Agents, NotInvitedError
from reconciler.protocols.history import Event, History
from solver.model.document import decode, encode
from solver.model.quantities import Duration

LATE: Final = Duration(14 * LIFE)
"""How long after its end a certificate still gets the next one: no outage of the control plane shall make every node join again."""

EXCHANGE_S: Final = 10.0
"""Seconds within which the question has to be there."""

_JOIN_AGAIN: Final = "Make a token with `quorate agents token NODE` and join again"


class Enrolment:
    """Answers agents that want a certificate. Any thread may call it.

    `together`: what is written in its block is there whole, or not at all.
    """

    def __init__(
        self,
        authority: CertificateAuthority,
        agents: Agents,
        history: History,
        clock: Clock,
        together: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._authority = authority
        self._agents = agents
        self._history = history
        self._clock = clock
        self._together = together

    def answer(self, message: bytes) -> bytes:
        """The answer to one question, both in JSON. Raises StoreUnusableError and KeyFileError, and nothing for a bad question."""
        return encode(self._answered(message))

    def roots(self) -> bytes:
        """The authorities that are trusted now, as PEM."""
        return self._authority.ca_certificate

    def _answered(self, message: bytes) -> Answered:
        try:
            asked: Asked = decode(message, Asked)  # type: ignore[arg-type]  # a union is no class to mypy
            return self._joined(asked) if isinstance(asked, JoinAsked) else self._renewed(asked)
        except (msgspec.MsgspecError, CertificateError, JoinTokenError, UnicodeEncodeError) as error:
            return NotIssued("malformed", str(error), "Update the older one of the two, agent or control plane")
        except NotInvitedError as error:
            return NotIssued("not-invited", str(error), _JOIN_AGAIN)
        except (UntrustedError, AgentRevokedError) as error:
            return NotIssued("untrusted", str(error), _JOIN_AGAIN)

    def _joined(self, asked: JoinAsked) -> Issued:
        token, request, now = read_token(asked.token), read_request(asked.request), self._clock.now()
        node = node_of_request(request)
        # It is on record before the certificate leaves. A node that never gets the answer asks again with the same key.
        with self._together():
            agent = self._agents.join(token.hash, node, key_fingerprint(request), now, now.after(LIFE))
            self._history.record_event(Event(now, "agent-joined", node, f"generation {agent.generation}", "agent"))
        return self._issued(request, agent.generation)

    def _renewed(self, asked: RenewalAsked) -> Issued:
        request, now = read_request(asked.request), self._clock.now()
        identity = self._proved(asked)
        if node_of_request(request) != identity.node:
            raise UntrustedError(f"node {identity.node} asks for a certificate of node {node_of_request(request)}")
        self._agents.renew(identity.node, identity.generation, now, now.after(LIFE))
        return self._issued(request, identity.generation)

    def _proved(self, asked: RenewalAsked) -> NodeIdentity:
        """The node of a certificate, if the asking agent has its key. Raises UntrustedError."""
        try:
            certificate = x509.load_pem_x509_certificate(asked.certificate.encode())
            identity, key = self._authority.signed(certificate, LATE), certificate.public_key()
            signature = base64.b64decode(asked.signature, validate=True)
            if not isinstance(key, ec.EllipticCurvePublicKey):
                raise UntrustedError("the certificate's key is not on the curve P-256")
            key.verify(signature, asked.request.encode(), ec.ECDSA(hashes.SHA256()))
        except (InvalidSignature, ValueError, binascii.Error) as error:
            raise UntrustedError("the request is not signed by the key of the certificate") from error
        return identity

    def _issued(self, request: x509.CertificateSigningRequest, generation: int) -> Issued:
        certificate = self._authority.issue(request, generation).decode()
        return Issued(certificate, self.roots().decode())


async def serve_joining(connection: ServerConnection, joining: Enrolment) -> None:
    """For a connection to JOIN_PATH: one question, one answer. An agent that does not ask in time gets no answer."""
    try:
        async with asyncio.timeout(EXCHANGE_S):
            message = await connection.recv(decode=False)
    except TimeoutError:
        return
    if len(message) <= MESSAGE_BYTES_MAX:
        await connection.send(await asyncio.to_thread(joining.answer, message))


def roots_response(connection: ServerConnection, joining: Enrolment) -> Response:
    """For a request to ROOTS_PATH."""
    return connection.respond(HTTPStatus.OK, joining.roots().decode())
