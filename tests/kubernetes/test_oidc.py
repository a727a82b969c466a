"""ID tokens of an issuer: refreshed before they end, over TLS that is checked, and kept in the kubeconfig they came from."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote_plus

import pytest
import yaml
from aiohttp import web

from hack.kubernetes.certificates import Authority
from hack.kubernetes.cluster import Cluster
from reconciler.kubernetes.client.kubeconfig import from_kubeconfig
from reconciler.kubernetes.client.refusals import CredentialsError
from reconciler.model.clock import SystemClock
from tests.kubernetes.kubeconfigs import AUTHORITY, account_token, encoded, kubeconfig, of, speaking, until, who
from tests.kubernetes.sessions import a_namespace, session
from tests.kubernetes.test_pace import ManualClock


def id_token(ends_s: float, name: str = "ada") -> str:
    """A JWT nobody signed, whose claims need the `-` and `_` of URL-safe base64."""
    claims = json.dumps({"exp": ends_s, "sub": f"{name}>>>???"}).encode()
    return f"e30.{base64.urlsafe_b64encode(claims).decode().rstrip('=')}.c2ln"


class Idp:
    """Answers one refresh token, each with the next answer; what came is in `heard`."""

    def __init__(self) -> None:
        self.url = ""
        self.answers: list[dict[str, str]] = []
        self.heard: list[tuple[str, str, str]] = []
        self.endpoint = ""
        """Else its own."""

    async def discovered(self, _: web.Request) -> web.Response:
        return web.json_response({"token_endpoint": self.endpoint or f"{self.url}/token"})

    async def moved(self, _: web.Request) -> web.Response:
        raise web.HTTPTemporaryRedirect(f"{self.url}/token")

    async def token(self, request: web.Request) -> web.Response:
        form = parse_qs(await request.text())
        login, _, password = base64.b64decode(request.headers["Authorization"].split()[1]).decode().partition(":")
        self.heard.append((unquote_plus(login), unquote_plus(password), form["refresh_token"][0]))
        return web.json_response(self.answers.pop(0)) if self.answers else web.json_response({}, status=400)

    def user(self, **config: str | None) -> dict[str, Any]:
        shipped: dict[str, str | None] = {
            "idp-issuer-url": self.url, "client-id": "cli", "client-secret": "s3 cret", "refresh-token": "r1",
            "idp-certificate-authority-data": encoded(AUTHORITY.pem),
        }  # fmt: skip
        stated = {key: value for key, value in {**shipped, **config}.items() if value is not None}
        return {"auth-provider": {"name": "oidc", "config": stated}}


@asynccontextmanager
async def an_issuer(folder: Path) -> AsyncIterator[Idp]:
    certificate, key = AUTHORITY.server()
    (folder / "issuer.pem").write_bytes(certificate + key)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(folder / "issuer.pem")
    idp = Idp()
    app = web.Application()
    app.router.add_get("/.well-known/openid-configuration", idp.discovered)
    app.router.add_post("/token", idp.token)
    app.router.add_post("/moved", idp.moved)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        idp.url = f"https://127.0.0.1:{runner.addresses[0][1]}"
        yield idp
    finally:
        await runner.cleanup()


def test_a_token_that_holds_is_used_and_refreshed_before_it_ends(tmp_path: Path) -> None:
    async def story() -> None:
        clock = ManualClock()
        async with an_issuer(tmp_path) as idp:
            first, second, third = id_token(1000), id_token(2000), id_token(3000)
            path = kubeconfig(tmp_path, user=idp.user(**{"id-token": first}))
            path.chmod(0o640)
            credentials = from_kubeconfig(path, clock)
            await credentials.transport()
            assert await credentials.authorization() == f"Bearer {first}"
            assert idp.heard == []
            idp.answers = [{"id_token": second, "refresh_token": "r2"}, {"id_token": third}]
            clock.now_s = 941
            assert await credentials.authorization() == f"Bearer {first}"
            await until(lambda: credentials._header() == f"Bearer {second}")
            clock.now_s = 2001
            assert await credentials.authorization() == f"Bearer {third}"
        assert idp.heard == [("cli", "s3 cret", "r1"), ("cli", "s3 cret", "r2")]
        kept = yaml.safe_load(path.read_text())["users"][0]["user"]["auth-provider"]["config"]
        assert (kept["id-token"], kept["refresh-token"]) == (third, "r2")
        assert path.stat().st_mode & 0o777 == 0o600, "it holds secrets"
        assert sorted(os.listdir(tmp_path)) == ["config", "issuer.pem"]

    asyncio.run(story())


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"refresh-token": None}, "there is no refresh-token. Log in anew"),
        ({"idp-certificate-authority-data": None}, "certificate verify failed"),
        ({"idp-certificate-authority-data": encoded(Authority().pem)}, "certificate verify failed"),
        ({"idp-certificate-authority-data": "YQ=="}, "the issuer's certificate authority can't be read"),
        ({"idp-issuer-url": "http://127.0.0.1:1"}, "is not https"),
        ({}, "gave no new ID token: oidc: failed to refresh access token"),
        ({"id-token": "a.b"}, "no JWT of three parts"),
    ],
)
def test_an_issuer_that_can_not_be_trusted_or_refuses_is_one_error(
    tmp_path: Path, config: dict[str, str | None], problem: str
) -> None:
    async def story() -> None:
        async with an_issuer(tmp_path) as idp:
            path = kubeconfig(tmp_path, user=idp.user(**config))
            with pytest.raises(CredentialsError, match=problem) as refused:
                await from_kubeconfig(path, ManualClock()).transport()
            assert str(path) in str(refused.value)
            assert "s3 cret" not in str(refused.value)
            assert not idp.heard or config == {}

    asyncio.run(story())


@pytest.mark.parametrize("endpoint", ["{}/moved", "http://127.0.0.1:1/token"])
def test_a_refresh_token_goes_nowhere_else(tmp_path: Path, endpoint: str) -> None:
    async def story() -> None:
        async with an_issuer(tmp_path) as idp:
            idp.endpoint = endpoint.format(idp.url)
            idp.answers = [{"id_token": id_token(1000)}]
            with pytest.raises(CredentialsError, match="gave no new ID token"):
                await from_kubeconfig(kubeconfig(tmp_path, user=idp.user()), ManualClock()).transport()
            assert idp.heard == []

    asyncio.run(story())


@pytest.mark.parametrize("now", [None, "", "users: [{name: u}]\n", "users: [\n"])
def test_a_kubeconfig_that_is_another_by_now_is_left(tmp_path: Path, now: str | None) -> None:
    async def story() -> None:
        async with an_issuer(tmp_path) as idp:
            idp.answers = [{"id_token": id_token(1000)}]
            path = kubeconfig(tmp_path, user=idp.user())
            credentials = from_kubeconfig(path, ManualClock())
            path.unlink()
            if now is not None:
                path.write_text(now)
            await credentials.transport()
            assert await credentials.authorization() == f"Bearer {id_token(1000)}"
            assert (path.read_text() if path.exists() else None) == now
            assert set(os.listdir(tmp_path)) <= {"config", "issuer.pem"}

    asyncio.run(story())


@pytest.mark.kubernetes
def test_a_refreshed_token_speaks(cluster: Cluster, tmp_path: Path) -> None:
    """What the issuer signs is an account's token, which this API server takes without being set up for an issuer."""

    async def story() -> None:
        async with session(cluster) as admin:
            space = await a_namespace(admin)
            signed = await account_token(admin, space, "ada")
        async with an_issuer(tmp_path) as idp:
            idp.answers = [{"id_token": signed}]
            path = kubeconfig(tmp_path, of(cluster), idp.user(**{"id-token": id_token(5)}))
            async with speaking(from_kubeconfig(path, SystemClock())) as api:
                assert await who(api) == f"system:serviceaccount:{space}:ada"

    asyncio.run(story())
