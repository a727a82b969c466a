"""What the certificates of nodes and of control planes say: made and read here, trusted elsewhere. X.509 as of RFC 5280."""

from __future__ import annotations

import re
import secrets
from base64 import urlsafe_b64encode
from datetime import UTC, datetime
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from solver.model.cluster import NodeName
from solver.model.quantities import Duration, Instant

CONTROL_PLANE: Final = "control-plane.quorate.internal"
"""What the certificate of every control plane names, whatever address it is reached at: agents ask for it by this name."""

LIFE: Final = Duration(24 * 3_600_000)
"""For how long a certificate of a node or a control plane is good."""

_ROOT_LIFE: Final = Duration(3_650 * LIFE)
_EARLIER: Final = Duration(5 * 60_000)
"""Clocks of machines differ: a certificate is good from a little before it was made."""

_URI: Final = "quorate://node/"
_NODE: Final = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
_CHANCE_BITS: Final = 96
_SIGNED_BY_HASH: Final = hashes.SHA256()

Key = ec.EllipticCurvePrivateKey


class CertificateError(Exception):
    """A certificate or a request for one is not as it has to be; the message says how."""


class NodeIdentity(NamedTuple):
    """What a node's certificate says. `generation`: of the agent's, when it was given."""

    node: NodeName
    generation: int
    until: Instant


def is_node_name(name: str) -> bool:
    """Whether this may be the name of a node: as `nodeName` of schemas/common.json."""
    return _NODE.fullmatch(name) is not None


def new_key() -> Key:
    """A fresh key on the curve P-256."""
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: Key) -> bytes:
    """The key, in the clear: for a file that only its owner can read."""
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def read_key(pem: bytes) -> Key:
    """Raises CertificateError for what is no key of this curve."""
    try:
        key = serialization.load_pem_private_key(pem, None)
    except ValueError as error:
        raise CertificateError("there is no private key in it") from error
    if not isinstance(key, Key) or not isinstance(key.curve, ec.SECP256R1):
        raise CertificateError("its key is not on the curve P-256")
    return key


def pem_of(*certificates: x509.Certificate) -> bytes:
    """The certificates one after the other, as PEM."""
    return b"".join(each.public_bytes(serialization.Encoding.PEM) for each in certificates)


def fingerprint(certificate: x509.Certificate) -> str:
    """Names a certificate by its content: SHA-256 in 43 letters that need no quoting."""
    return urlsafe_b64encode(certificate.fingerprint(hashes.SHA256())).rstrip(b"=").decode()


def key_fingerprint(request: x509.CertificateSigningRequest) -> str:
    """Names the key that asks."""
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    digest = hashes.Hash(hashes.SHA256())
    digest.update(request.public_key().public_bytes(serialization.Encoding.DER, form))
    return urlsafe_b64encode(digest.finalize()).rstrip(b"=").decode()


def new_root(key: Key, now: Instant) -> x509.Certificate:
    """The certificate of an authority, for its own key. It signs certificates of nodes and control planes, and of no authority."""
    serial = x509.random_serial_number()
    # Two authorities are trusted while one follows the other: names tell them apart.
    name = _name(f"Quorate agents {serial:x}"[:64])
    may_sign = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    made = (
        _made(name, name, key.public_key(), serial, now, _ROOT_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(may_sign, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return made.sign(key, _SIGNED_BY_HASH)


def made_at(certificate: x509.Certificate) -> Instant:
    """When it was made, to the second."""
    return _instant(certificate.not_valid_before_utc).after(_EARLIER)


def ends_at(certificate: x509.Certificate) -> Instant:
    """From when on it is good no more."""
    return _instant(certificate.not_valid_after_utc)


def server_certificate(
    root: x509.Certificate, root_key: Key, key: ec.EllipticCurvePublicKey, now: Instant
) -> x509.Certificate:
    """For a control plane. No node can use its own as one, nor the other way round: each is for one end of a connection."""
    made = _made(_name(CONTROL_PLANE), root.subject, key, x509.random_serial_number(), now, LIFE)
    return _leaf(made, root, x509.DNSName(CONTROL_PLANE), ExtendedKeyUsageOID.SERVER_AUTH).sign(
        root_key, _SIGNED_BY_HASH
    )


def node_certificate(
    root: x509.Certificate, root_key: Key, request: x509.CertificateSigningRequest, generation: int, now: Instant
) -> x509.Certificate:
    """For the node that asks. Raises CertificateError."""
    node, key = node_of_request(request), request.public_key()
    # The generation is in the serial number, above bits that can't be foretold.
    serial = generation << _CHANCE_BITS | secrets.randbits(_CHANCE_BITS)
    made = _made(_name(node[:64]), root.subject, key, serial, now, LIFE)  # type: ignore[arg-type]  # `asking` has seen it
    uri = x509.UniformResourceIdentifier(_URI + node)
    return _leaf(made, root, uri, ExtendedKeyUsageOID.CLIENT_AUTH).sign(root_key, _SIGNED_BY_HASH)


def request_for(node: NodeName, key: Key) -> x509.CertificateSigningRequest:
    """What a node sends to get a certificate for its key."""
    names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(_URI + node)])
    builder = x509.CertificateSigningRequestBuilder().subject_name(_name(node[:64]))
    return builder.add_extension(names, critical=False).sign(key, _SIGNED_BY_HASH)


def read_request(pem: str) -> x509.CertificateSigningRequest:
    """Raises CertificateError."""
    try:
        return x509.load_pem_x509_csr(pem.encode())
    except ValueError as error:
        raise CertificateError("the request for a certificate can't be read") from error


def node_of_request(request: x509.CertificateSigningRequest) -> NodeName:
    """The node that asks for a certificate, with a key that it has. Raises CertificateError."""
    try:
        key = request.public_key()
        if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
            raise CertificateError("the request's key is not on the curve P-256")
        if not request.is_signature_valid:
            raise CertificateError("the request is not signed by its own key")
        return _only_node(request.extensions)
    except (ValueError, x509.ExtensionNotFound, x509.DuplicateExtension) as error:
        raise CertificateError(f"the request names no node ({error})") from error


def identity_of(certificate: x509.Certificate) -> NodeIdentity:
    """Which node's this certificate is. Raises CertificateError for one that is no node's; whether it counts is not asked."""
    try:
        uses = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        if ExtendedKeyUsageOID.CLIENT_AUTH not in uses:
            raise CertificateError("it is no certificate of a node")
        node = _only_node(certificate.extensions)
    except (ValueError, x509.ExtensionNotFound, x509.DuplicateExtension) as error:
        raise CertificateError(f"it is no certificate of a node ({error})") from error
    return NodeIdentity(node, certificate.serial_number >> _CHANCE_BITS, ends_at(certificate))


def _only_node(extensions: x509.Extensions) -> NodeName:
    names = list(extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    uri = names[0].value if len(names) == 1 and isinstance(names[0], x509.UniformResourceIdentifier) else ""
    node = uri.removeprefix(_URI)
    if not uri.startswith(_URI) or not is_node_name(node):
        raise CertificateError(f"it has to name exactly one node, as {_URI}NAME")
    return NodeName(node)


def _leaf(
    made: x509.CertificateBuilder, root: x509.Certificate, name: x509.GeneralName, use: x509.ObjectIdentifier
) -> x509.CertificateBuilder:
    known = root.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    by = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(known)
    return (
        made.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([name]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([use]), critical=True)
        .add_extension(by, critical=False)
    )


def _made(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, serial: int, now: Instant, life: Duration
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key).serial_number(serial)
    # Whole seconds are all that a certificate can say.
    begun = now - now % 1_000
    return builder.not_valid_before(_time(begun - _EARLIER)).not_valid_after(_time(begun + life))


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms // 1_000, UTC)


def _instant(time: datetime) -> Instant:
    return Instant(int(time.timestamp()) * 1_000)
