"""The official client's transport: its TLS context and proxy, and aiohttp sessions without what it would do by itself."""

from __future__ import annotations

import ssl
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Final

import aiohttp
from kubernetes.aio.client import Configuration
from kubernetes.aio.client.rest import RESTClientObject

from reconciler.kubernetes.client.connections import Sockets
from reconciler.kubernetes.client.refusals import CredentialsError

READ_BUFFER: Final = 2**16
"""aiohttp's own size. The official client's 2 MiB a connection are for its `readline`; here lines are put together from blocks."""


class KubeTransport(RESTClientObject):
    """Made of a loaded configuration; raises CredentialsError where its certificates can't be used.

    `one_connection_each`: a client certificate that is renewed holds for new connections alone, so that none is kept.
    """

    def __init__(self, configuration: Configuration, *, one_connection_each: bool = False) -> None:
        _refuse_encrypted_key(configuration.key_file)
        try:
            super().__init__(configuration)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise CredentialsError(
                f"{configuration.host}: the certificate authority or the client certificate can't be used: {error}. "
                "Both have to be PEM, and the key has to belong to the certificate"
            ) from error
        self.ssl_context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._one_connection_each = one_connection_each
        self._sockets = Sockets()
        self.presented = _presented(configuration)

    @property
    def server(self) -> str:
        """Where, such as https://api.example:6443."""
        return str(self.configuration.host)

    @property
    def server_name(self) -> str | None:
        """The name that the server's certificate has to have, if not the address."""
        return self.configuration.tls_server_name  # type: ignore[no-any-return]

    def session(self, sockets: Sockets, middleware: aiohttp.ClientMiddlewareType) -> aiohttp.ClientSession:
        """A session of its own connections. Proxies are those of the kubeconfig, never those of the environment or of .netrc."""
        self._sockets = sockets
        self.configuration.client_session_kwargs = {
            "trust_env": False,
            "read_bufsize": READ_BUFFER,
            # Uncompressed: over a fast network the server's gzip takes longer than sending a long list.
            "headers": {
                "Accept": "application/json",
                "Accept-Encoding": "identity",
                "User-Agent": f"quorate/{version('quorate')}",
            },
            "middlewares": (middleware,),
            "cookie_jar": aiohttp.DummyCookieJar(),
        }
        made: aiohttp.ClientSession = self._create_pool_manager()
        return made

    def renew(self, configuration: Configuration) -> None:
        """Trust and present what these name too, for connections from now on. Raises CredentialsError."""
        _refuse_encrypted_key(configuration.key_file)
        try:
            if configuration.ssl_ca_cert:
                self.ssl_context.load_verify_locations(cafile=configuration.ssl_ca_cert)
            if configuration.cert_file:
                self.presented = _presented(configuration)
                self.ssl_context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
        except (OSError, ValueError) as error:
            raise CredentialsError(
                f"{self.server}: renewed certificates can't be used: {error}. Make them anew"
            ) from error

    def _create_connector(self) -> aiohttp.TCPConnector:
        # Watches hold a connection each, so that the limit is a semaphore of `Api`, which they are not counted in.
        return aiohttp.TCPConnector(
            ssl=self.ssl_context, limit=0, socket_factory=self._sockets, force_close=self._one_connection_each
        )


def _presented(configuration: Configuration) -> bytes:
    """What tells one client certificate from the next; empty: none is presented."""
    return sha256(Path(configuration.cert_file).read_bytes()).digest() if configuration.cert_file else b""


def _refuse_encrypted_key(path: str | None) -> None:
    """OpenSSL would ask for its passphrase on the terminal."""
    if path and b"ENCRYPTED" in Path(path).read_bytes():
        raise CredentialsError("The client's key is encrypted, and nothing here can ask for its passphrase. Decrypt it")
