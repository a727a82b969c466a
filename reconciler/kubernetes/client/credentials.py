"""Where the API server is and as which user to speak to it: tokens are fetched anew before they end, and once after a 401."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from math import inf
from typing import Final, Protocol

import structlog
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import kube_config

from reconciler.kubernetes.client.refusals import CredentialsError
from reconciler.kubernetes.client.transport import KubeTransport
from reconciler.model.clock import Clock

RENEW_BEFORE_S: Final = 60.0
"""So long before a token ends it is fetched anew, or a fifth of its life where that is shorter; requests go on with the old one."""
TRY_AGAIN_S: Final = 10.0
"""After a failure, or for a token that the server refuses: a cloud's token service is not asked more often."""
RETIRE_S: Final = 30.0
"""So long after another client certificate came no connection is kept: aiohttp closes one that was idle for half of that."""
RENEW_MIN_S: Final = 1.0
"""A token that has ended when it comes, by a clock that goes wrong, is used for so long; the server decides."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration of the official client. In `read_again_s` seconds it has to be looked at again; in `ends_s` it holds no more.

    `renewable`: loading it once more may bring another token. `certificate` says which client certificate a plugin gave; "": none.
    """

    configuration: Configuration
    renewable: bool = False
    read_again_s: float = inf
    ends_s: float = inf
    certificate: str = ""


class Source(Protocol):
    """A kubeconfig, or what a pod is given."""

    async def load(self) -> Loaded:
        """What it says now. Raises CredentialsError."""


class FixedSource:
    """A source that stays what it is."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration

    async def load(self) -> Loaded:
        """The same."""
        return Loaded(self._configuration)


class Credentials:
    """Shared by the sessions with one API server. Nothing is loaded before the first of them begins."""

    def __init__(self, source: Source, clock: Clock) -> None:
        self._source = source
        self._clock = clock
        self._transport: KubeTransport | None = None
        self._loaded: Loaded | None = None
        self._version = 0
        self._failure: CredentialsError | None = None
        self._asked_s = -inf
        self._renew_s = -inf
        self._ends_s = -inf
        self._retired_s = -inf
        self._renewing: asyncio.Task[None] | None = None

    async def transport(self) -> KubeTransport:
        """For a session. Raises CredentialsError."""
        if self._transport is None:
            await self._renewed()
        if self._transport is None:
            raise self._failed()
        return self._transport

    async def authorization(self) -> str:
        """The header of a request that leaves now; empty: none. Raises CredentialsError where the last one has ended."""
        now_s = self._clock.monotonic_s()
        if now_s >= self._renew_s:
            renewal = self._renewed()
            if now_s >= self._ends_s:
                await renewal
        if self._failure and self._clock.monotonic_s() >= self._ends_s:
            raise self._failed()
        return self._header()

    @property
    def keeps_connections(self) -> bool:
        """Whether a connection may be used again. Those that are open go by the certificate with which they began."""
        return self._clock.monotonic_s() >= self._retired_s

    async def changed_after(self, refused: str) -> bool:
        """The server refused this header with 401: whether there is another now, or another certificate."""
        if self._header() != refused:
            return True
        if self._loaded is None or not self._loaded.renewable:
            return False
        under_way = self._renewing is not None and not self._renewing.done()
        if not under_way and self._clock.monotonic_s() - self._asked_s < TRY_AGAIN_S:
            return False
        before = self._version
        await self._renewed()
        return self._version != before

    def _renewed(self) -> asyncio.Future[None]:
        """One renewal for all that wait; a caller that stops waiting stops it for none of the others."""
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.get_running_loop().create_task(self._renew())
        return asyncio.shield(self._renewing)

    async def _renew(self) -> None:
        self._asked_s = self._clock.monotonic_s()
        try:
            loaded = await self._source.load()
            self._take(loaded)
        except CredentialsError as error:
            if self._loaded is not None and str(error) != str(self._failure):
                structlog.get_logger("quorate").error(
                    "credentials-unusable", problem=str(error), kept="those of before"
                )
            self._failure = error
            self._renew_s = self._clock.monotonic_s() + TRY_AGAIN_S
        finally:
            # Keys of kubeconfigs and plugins lie in files that the official client would leave until the process ends. Between
            # its writing them and the TLS context nothing is awaited, so that no other renewal's are among them.
            kube_config._cleanup_temp_files()

    def _take(self, loaded: Loaded) -> None:
        configuration, now_s = loaded.configuration, self._clock.monotonic_s()
        header, presented = self._header(), self._transport.presented if self._transport else b""
        if self._transport is None:
            self._transport = KubeTransport(configuration, one_connection_each=bool(loaded.certificate))
        else:
            self._transport.renew(configuration)
            if self._transport.presented != presented:
                self._retired_s = now_s + RETIRE_S
        self._loaded, self._failure = loaded, None
        if (self._header(), self._transport.presented) != (header, presented):
            self._version += 1
        self._ends_s = now_s + loaded.ends_s
        early_s = min(RENEW_BEFORE_S, loaded.ends_s / 5)
        self._renew_s = now_s + max(min(loaded.read_again_s, loaded.ends_s - early_s), RENEW_MIN_S)

    def _header(self) -> str:
        key = self._loaded.configuration.api_key.get("BearerToken") if self._loaded else None
        return str(key or "")

    def _failed(self) -> CredentialsError:
        raise CredentialsError(str(self._failure)) from self._failure


def fixed_credentials(server: str, authority: str, clock: Clock) -> Credentials:
    """To a server that this authority (PEM) vouches for, without a token."""
    return Credentials(FixedSource(Configuration(host=server, ca_cert_data=authority)), clock)
