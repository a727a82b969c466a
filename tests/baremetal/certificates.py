"""Certificates as a site's own CA would make them: one for the server, one for each node."""

from __future__ import annotations

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from reconciler.backends.baremetal.trust import NODE_URI, FileTrust, context_of

DAY = timedelta(days=1)


class Authority:
    """A CA, and a folder for what it signs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named("CA")
        self.ca = folder / "ca.pem"
        self.ca.write_bytes(_pem(self._certificate("CA", self._key, [], is_ca=True)))

    def server(self) -> tuple[Path, Path]:
        """A certificate and key for this machine."""
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        return self.issue("server", names)

    def node(self, name: str) -> tuple[Path, Path]:
        """A certificate and key for an agent."""
        return self.issue(name, [x509.UniformResourceIdentifier(f"{NODE_URI}{name}")])

    def issue(self, name: str, names: list[x509.GeneralName], until: timedelta = DAY) -> tuple[Path, Path]:
        """Signed for these names; expired where `until` is negative."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate, key_file = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        certificate.write_bytes(_pem(self._certificate(name, key, names, until)))
        encoding = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        key_file.write_bytes(key.private_bytes(*encoding))
        key_file.chmod(0o600)
        return certificate, key_file

    def trust(self) -> FileTrust:
        """What the door is given."""
        return FileTrust(*self.server(), self.ca)

    def context(self, name: str) -> ssl.SSLContext:
        """What the agent of a node connects with."""
        return context_of(ssl.PROTOCOL_TLS_CLIENT, *self.node(name), self.ca)

    def _certificate(
        self,
        name: str,
        key: ec.EllipticCurvePrivateKey,
        names: list[x509.GeneralName],
        until: timedelta = DAY,
        is_ca: bool = False,
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(_named(name))
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 2 * DAY)
            .not_valid_after(now + until)
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self._key, hashes.SHA256())


@cache
def authority() -> Authority:
    """One for all tests of a process."""
    return Authority(Path(mkdtemp(prefix="quorate-ca-")))


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
