"""Gets certificates for this node: the first by a token, each next one by the one before it."""

from __future__ import annotations

import base64
import http.client
import ssl
from pathlib import Path
from typing import Final

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from reconciler.backends.baremetal.authority_file import blocks
from reconciler.backends.baremetal.certificates import (
    CONTROL_PLANE,
    CertificateError,
    Key,
    fingerprint,
    identity_of,
    key_pem,
    new_key,
    pem_of,
    read_key,
    request_for,
)
from reconciler.backends.baremetal.join_token import JoinToken
from reconciler.backends.baremetal.join_wire import (
    JOIN_PATH,
    MESSAGE_BYTES_MAX,
    ROOTS_PATH,
    Answered,
    Asked,
    Issued,
    JoinAsked,
    NotIssued,
    RenewalAsked,
)
from reconciler.backends.baremetal.key_files import KeyFileError, read_private, write_private
from reconciler.node.agent.identity import AgentIdentity, client_context, read_identity
from solver.model.cluster import NodeName
from solver.model.document import decode, encode

TIMEOUT_S: Final = 15.0
_ANSWER_BYTES_MAX: Final = 4 * MESSAGE_BYTES_MAX


class JoinRefusedError(Exception):
    """The control plane gives no certificate, or is not the one that the token names. A person must act; the message says how."""


class ControlPlaneUnreachableError(Exception):
    """Nothing answers there, or not as a control plane does. Later it may."""


def join(host: str, port: int, token: JoinToken, path: Path) -> AgentIdentity:
    """Become the agent of the token's node, and keep its identity in the file `path`.

    Repeated after an answer that never came, it asks with the same key, which the token then still serves.
    Raises JoinRefusedError, ControlPlaneUnreachableError, KeyFileError.
    """
    _refuse_another_nodes(path, token.node)
    root = _pinned(_authorities(host, port), token.root)
    pending = path.with_name(path.name + ".joining")
    key = _kept_key(pending)
    request = pem_of_request(token.node, key)
    issued = _asked(host, port, pem_of(root), JoinAsked(str(token), request))
    identity = _kept(path, token.node, key, issued)
    pending.unlink()
    return identity


def renew(host: str, port: int, identity: AgentIdentity) -> AgentIdentity:
    """The next certificate, for a key of its own; the file has it from then on.

    Raises JoinRefusedError, ControlPlaneUnreachableError, KeyFileError.
    """
    before, key = identity.key, new_key()
    request = pem_of_request(identity.node, key)
    signature = base64.b64encode(before.sign(request.encode(), ec.ECDSA(hashes.SHA256()))).decode()
    asked = RenewalAsked(pem_of(identity.certificate).decode(), request, signature)
    return _kept(identity.path, identity.node, key, _asked(host, port, identity.authorities, asked))


def pem_of_request(node: NodeName, key: Key) -> str:
    """The request for a certificate of this node, as it is sent."""
    return request_for(node, key).public_bytes(serialization.Encoding.PEM).decode()


def _refuse_another_nodes(path: Path, node: NodeName) -> None:
    try:
        there = read_identity(path)
    except KeyFileError:  # None, or none that is good for anything.
        return
    if there.node != node:
        raise KeyFileError(
            f"{path}: it is {there.node}'s, and the token is for {node}. Name another file, or delete it"
        )


def _kept_key(pending: Path) -> Key:
    """The key to join with, on the disk before it is sent."""
    if not pending.exists():
        write_private(pending, key_pem(new_key()))
    return _key_in(pending)


def _key_in(path: Path) -> Key:
    try:
        return read_key(read_private(path))
    except CertificateError as error:
        raise KeyFileError(f"{path}: {error}. Delete it and join again") from error


def _kept(path: Path, node: NodeName, key: Key, issued: Issued) -> AgentIdentity:
    try:
        certificate = x509.load_pem_x509_certificate(issued.certificate.encode())
        for_this = certificate.public_key() == key.public_key() and identity_of(certificate).node == node
    except (ValueError, CertificateError) as error:
        raise ControlPlaneUnreachableError(f"the certificate that came can't be used: {error}") from error
    if not for_this:
        raise ControlPlaneUnreachableError("the certificate that came is for another key or node")
    write_private(path, key_pem(key) + pem_of(certificate) + issued.authorities.encode())
    return read_identity(path)


def _authorities(host: str, port: int) -> list[x509.Certificate]:
    """The authorities that the control plane says to believe: nothing is believed of it that the token does not name."""
    unverified = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=unverified)
    try:
        connection.request("GET", ROOTS_PATH)
        content = connection.getresponse().read(_ANSWER_BYTES_MAX)
        return [x509.load_pem_x509_certificate(block) for kind, block in blocks(content) if kind == "CERTIFICATE"]
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise ControlPlaneUnreachableError(f"{host}:{port}: no control plane answers there: {error}") from error
    finally:
        connection.close()


def _pinned(authorities: list[x509.Certificate], pin: str) -> x509.Certificate:
    for each in authorities:
        if fingerprint(each) == pin:
            return each
    raise JoinRefusedError(
        "this is not the control plane that the token is of: its authority is another one. "
        "Check the address; if it is right, make another token"
    )


def _asked(host: str, port: int, authorities: bytes, asked: Asked) -> Issued:
    try:
        with connect(
            f"wss://{host}:{port}{JOIN_PATH}",
            ssl=client_context(authorities),
            server_hostname=CONTROL_PLANE,
            open_timeout=TIMEOUT_S,
            max_size=_ANSWER_BYTES_MAX,
            compression=None,
            proxy=None,
        ) as connection:
            connection.send(encode(asked))
            answered: Answered = decode(connection.recv(TIMEOUT_S), Answered)  # type: ignore[arg-type]  # a union is no class
    except (OSError, TimeoutError, WebSocketException, msgspec.MsgspecError) as error:
        raise ControlPlaneUnreachableError(f"{host}:{port}: can't be asked for a certificate: {error}") from error
    if isinstance(answered, NotIssued):
        raise JoinRefusedError(f"{answered.problem}. {answered.fix}")
    return answered
