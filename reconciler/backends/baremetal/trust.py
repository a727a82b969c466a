"""Whom the door believes, and why: the seam for certificates, and one that reads them from files."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final, Protocol

from cryptography import x509

from solver.world.cluster import NodeName

NODE_URI: Final = "quorate://node/"
"""With the node's name behind it, the subject alternative name of an agent's certificate (RFC 5280, 4.2.1.6)."""


class UntrustedError(Exception):
    """A certificate that is not, or no longer, a node's."""


class CertificateFilesError(Exception):
    """Certificates or keys can't be read, or don't belong together: a person must act."""


class Trust(Protocol):
    """What the door needs."""

    def server_context(self) -> ssl.SSLContext:
        """For the listener: asks every client for a certificate."""

    def node_of(self, certificate: bytes) -> NodeName:
        """The node that a certificate (DER), whose chain and dates TLS has verified, speaks for. Raises UntrustedError."""


class FileTrust:
    """A certificate and key of the server's own, and the CA that signs agents' certificates, all PEM. Implements Trust."""

    def __init__(self, certificate: Path, key: Path, ca: Path) -> None:
        """Raises CertificateFilesError."""
        self._context = context_of(ssl.PROTOCOL_TLS_SERVER, certificate, key, ca)

    def server_context(self) -> ssl.SSLContext:
        """TLS 1.2 or newer, and a certificate of that CA asked of every client."""
        return self._context

    def node_of(self, certificate: bytes) -> NodeName:
        """By its one name of the form quorate://node/NAME."""
        return node_named_in(certificate)


def context_of(protocol: int, certificate: Path, key: Path, ca: Path) -> ssl.SSLContext:
    """One end of a connection on which both ends show a certificate of `ca`. Raises CertificateFilesError."""
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_cert_chain(certificate, key)
        context.load_verify_locations(ca)
    except (OSError, ssl.SSLError) as error:
        raise CertificateFilesError(
            f"{certificate}, {key}, {ca}: {error}. Give a certificate, its key and the CA that signs the other side's, as PEM"
        ) from error
    return context


def node_named_in(certificate: bytes) -> NodeName:
    """The one node that a certificate (DER) names. Raises UntrustedError."""
    extensions = x509.load_der_x509_certificate(certificate).extensions
    try:
        names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        raise UntrustedError("the certificate has no subject alternative name") from None
    nodes = [uri for uri in names.get_values_for_type(x509.UniformResourceIdentifier) if uri.startswith(NODE_URI)]
    if len(nodes) != 1 or nodes[0] == NODE_URI:
        raise UntrustedError(f"the certificate names {len(nodes)} nodes ({NODE_URI}NAME), and not one")
    return NodeName(nodes[0].removeprefix(NODE_URI))
