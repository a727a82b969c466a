"""The console of a real server on a real store, and a browser's half of signing in."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import httpx2
import pytest

from reconciler.access.authenticator import Authenticator
from reconciler.access.client_secrets import ClientSecrets
from reconciler.access.code_flow import CodeFlow
from reconciler.access.oidc import OidcVerifier
from reconciler.access.session_keeper import SessionKeeper
from reconciler.access.tokens import UserTokenFile, create_token
from reconciler.api.guard import LOOPBACK_NAMES, SESSION_COOKIE, Guard
from reconciler.api.server import ApiServer
from reconciler.api.services import Services
from reconciler.model.clock import VirtualClock
from reconciler.web.console import console_routers
from tests.reconciler.api.conftest import TOKEN, Site, site

__all__ = ["site"]


@dataclass
class Console:
    """A running one. `clock` is that of sessions; ada has a line in the token file. `secrets`:
    files with those of its clients, by issuer.
    """

    site: Site
    server: ApiServer
    clock: VirtualClock
    tokens: Path
    adas: str
    secrets: dict[str, Path]

    @property
    def url(self) -> str:
        return self.server.url

    @contextmanager
    def browser(self, token: str = TOKEN) -> Iterator[httpx2.Client]:
        """Signed in with a token; cookies of https hosts are sent over http to this machine, as Chromium does."""
        with self.stranger() as client:
            signed = self.sign_in(client, token)
            assert signed.status_code == HTTPStatus.SEE_OTHER, signed.text
            client.headers["cookie"] = cookie_of(signed)
            yield client

    def stranger(self) -> httpx2.Client:
        """Knows no token."""
        return httpx2.Client(base_url=self.url, trust_env=False, verify=False, timeout=60)

    def sign_in(self, client: httpx2.Client, token: str, to: str = "/") -> httpx2.Response:
        """Send the form."""
        return client.post("/sign-in", data={"token": token, "next": to}, headers={"origin": self.url})


def cookie_of(answer: httpx2.Response) -> str:
    """What a browser would send from now on."""
    kept = answer.headers["set-cookie"].partition(";")[0]
    assert kept.startswith(f"{SESSION_COOKIE}=")
    return str(kept)


@contextmanager
def serving_console(
    site: Site,
    folder: Path,
    external_url: str = "",
    hosts: Collection[str] = (),
    services: Services | None = None,
    port: int = 0,
) -> Iterator[Console]:
    """One, under these further names."""
    tokens, clock = folder / "tokens", VirtualClock()
    adas = create_token(tokens, "ada" if not tokens.exists() else "eve", ("ml",))
    file = UserTokenFile(tokens)
    identify = Authenticator(lambda: site.access, OidcVerifier(clock), file)
    keeper = SessionKeeper(site.store.sessions, clock, TOKEN, "alice", file, identify)
    names = LOOPBACK_NAMES.union(hosts)
    guard = Guard(TOKEN, "alice", names, identify=identify, session=keeper.caller, origin=external_url)
    services, files = services or site.services(), dict[str, Path]()
    routers = console_routers(services, keeper, CodeFlow(identify, clock, ClientSecrets(files)), external_url)
    with ApiServer(services, guard, port=port, routers=routers) as server:
        yield Console(site, server, clock, tokens, adas, files)


@pytest.fixture
def console(site: Site, tmp_path: Path) -> Iterator[Console]:
    with serving_console(site, tmp_path) as running:
        yield running
