"""The identity of this node's agent: its key and certificate, in one file that is replaced whole, and what it believes."""

from __future__ import annotations

import ssl
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cryptography import x509

from reconciler.backends.baremetal.authority_file import blocks
from reconciler.backends.baremetal.certificates import LIFE, CertificateError, Key, NodeIdentity, identity_of, read_key
from reconciler.backends.baremetal.key_files import KeyFileError, read_private
from solver.model.cluster import NodeName
from solver.model.quantities import Instant

SPREAD_MS: Final = LIFE // 10
"""Certificates that were made at once are not renewed at once: up to this much before or after half of their life."""


@dataclass(frozen=True, slots=True)
class AgentIdentity:
    """What is in the file: the key and its certificate, then the certificates of the authorities.

    `pem`: all of it, so that a file that is damaged later takes nothing away.
    `renew_at`: when to ask for the next certificate; the answer replaces the file.
    """

    path: Path
    certificate: x509.Certificate
    says: NodeIdentity
    authorities: bytes
    pem: bytes = field(repr=False)

    @property
    def node(self) -> NodeName:
        """The node that the agent speaks for."""
        return self.says.node

    @property
    def key(self) -> Key:
        """What it proves itself with."""
        return read_key(self.pem)

    @property
    def renew_at(self) -> Instant:
        """About half way through the certificate's life."""
        return renewal_time(self.certificate.serial_number, self.says.until)

    def client_context(self) -> ssl.SSLContext:
        """For connections to a control plane. Connect with `server_hostname=CONTROL_PLANE`, whatever the address is.

        Raises KeyFileError.
        """
        context = client_context(self.authorities)
        try:
            # The library reads keys from files alone. This one is its owner's, and gone with the block.
            with tempfile.NamedTemporaryFile("wb", prefix="quorate-") as file:
                file.write(self.pem)
                file.flush()
                context.load_cert_chain(file.name)
        except (OSError, ssl.SSLError) as error:
            raise KeyFileError(f"{self.path}: holds no key with its certificate. Delete it and join again") from error
        return context


def read_identity(path: Path) -> AgentIdentity:
    """Raises KeyFileError for a file that is not there, not its owner's alone, or damaged."""
    content = read_private(path)
    try:
        return _identity(path, content)
    except (ValueError, CertificateError) as error:
        raise KeyFileError(f"{path}: {error}. Delete it and join again") from error


def client_context(authorities: bytes) -> ssl.SSLContext:
    """A client's context that believes these authorities (PEM) and no others."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_verify_locations(cadata=authorities.decode())
    return context


def _identity(path: Path, content: bytes) -> AgentIdentity:
    certificates = [block for kind, block in blocks(content) if kind == "CERTIFICATE"]
    if len(certificates) < 2:
        raise CertificateError("there is no certificate with its authority in it")
    certificate = x509.load_pem_x509_certificate(certificates[0])
    if read_key(content).public_key() != certificate.public_key():
        raise CertificateError("its certificate is another key's")
    return AgentIdentity(path, certificate, identity_of(certificate), b"".join(certificates[1:]), content)


def renewal_time(number: int, until: Instant) -> Instant:
    """Half a life before the end, give or take what the certificate's number says: its last digits are chance."""
    return until.after(-(LIFE // 2) + number % (2 * SPREAD_MS) - SPREAD_MS)
