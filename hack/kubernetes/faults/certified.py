"""TLS of a proxy between Quorate and an API server, with certificates of the cluster's own authority."""

from __future__ import annotations

import ssl
import tempfile

from hack.kubernetes.cluster import Cluster


def contexts(cluster: Cluster, user: str, groups: tuple[str, ...]) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Towards those who ask, and towards the server."""
    towards_them = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    _present(towards_them, *cluster.authority.server())
    towards_server = ssl.create_default_context(cadata=cluster.authority.pem.decode())
    _present(towards_server, *cluster.authority.client(user, groups))
    return towards_them, towards_server


def _present(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(certificate + key)
        file.flush()
        context.load_cert_chain(file.name)
