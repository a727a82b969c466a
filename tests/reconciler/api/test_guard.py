"""Unauthenticated means refused, on every route there is; so does a browser sent by another site."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import httpx2
import pytest
from fastapi.routing import APIRoute, APIWebSocketRoute

from reconciler.access.caller import Caller
from reconciler.access.discovery import IssuerUnreachableError
from reconciler.access.oidc import BadTokenError
from reconciler.access.policy import AccessPolicy, IdentitySettings, OidcIssuer
from reconciler.api.app import create_app
from reconciler.api.guard import Guard, InsecureBindingError
from reconciler.api.rules import RULES
from reconciler.api.server import AddressError, ApiServer
from tests.reconciler.api.conftest import TOKEN, Site
from tests.reconciler.api.web import WEB

POD = "10.244.1.7:7717"
RIGHT = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def http(server: ApiServer) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=server.url, trust_env=False, verify=False, timeout=60) as client:
        yield client


def routes_of(http: httpx2.Client) -> list[tuple[str, str]]:
    document = http.get("/v1/openapi.json", headers=RIGHT).json()
    return [
        (method.upper(), re.sub(r"\{\w+\}", "1", path))
        for path, methods in document["paths"].items()
        for method in methods
    ]


def test_the_openapi_document_lists_every_route(site: Site, http: httpx2.Client) -> None:
    app = create_app(site.services(), Guard(TOKEN, user="alice"))
    served = flattened(app.router.routes)
    sockets = [route for route in served if isinstance(route, APIWebSocketRoute)]
    assert len(served) - len(sockets) == len(routes_of(http)) == len(RULES) - len(sockets)


def flattened(routes: Iterable[object]) -> list[APIRoute | APIWebSocketRoute]:
    """Routes of included routers too; anything else would escape the guard."""
    found: list[APIRoute | APIWebSocketRoute] = []
    for route in routes:
        inner = getattr(getattr(route, "original_router", None), "routes", None)
        if inner is not None:
            found += flattened(inner)
        else:
            assert isinstance(route, APIRoute | APIWebSocketRoute)
            found.append(route)
    return found


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({}, 401, "not-authenticated"),
        ({"Authorization": "Bearer wrong"}, 401, "not-authenticated"),
        ({"Authorization": f"Bearer {TOKEN}x"}, 401, "not-authenticated"),
        ({"Authorization": "Bearer"}, 401, "not-authenticated"),
        ({"Authorization": f"Basic {TOKEN}"}, 401, "not-authenticated"),
        ({"Authorization": TOKEN}, 401, "not-authenticated"),
        (RIGHT | {"Host": "evil.example"}, 403, "host-not-allowed"),
        (RIGHT | {"Host": "127.0.0.1.evil.example:80"}, 403, "host-not-allowed"),
        (RIGHT | {"Host": "[broken"}, 403, "host-not-allowed"),
        (RIGHT | {"Host": POD}, 403, "host-not-allowed"),
        (RIGHT | {"Origin": "http://evil.example"}, 403, "origin-not-allowed"),
        (RIGHT | {"Origin": "http://[broken"}, 403, "origin-not-allowed"),
        (RIGHT | {"Origin": "http://127.0.0.1:1"}, 403, "origin-not-allowed"),
        (RIGHT | {"Origin": "null"}, 403, "origin-not-allowed"),
    ],
)
def test_every_route_refuses(http: httpx2.Client, headers: dict[str, str], status: int, code: str) -> None:
    for method, path in routes_of(http):
        route = f"{method} {path}"
        if RULES.get(route) == "open" or (headers.get("Host") == POD and route == "GET /metrics"):
            continue  # tests/reconciler/api/test_probes.py
        response = http.request(method, path, headers=headers)
        assert (response.status_code, response.json()["code"]) == (status, code), f"{method} {path}"
        assert status != 401 or response.headers["WWW-Authenticate"] == "Bearer"


def test_every_route_lets_the_owner_in(http: httpx2.Client, server: ApiServer) -> None:
    for method, path in routes_of(http):
        if RULES.get(f"{method} {path}") == "signed":
            continue  # whoever asks; tests/reconciler/api/test_webhooks.py
        # Not read: /v1/watch has no end.
        with http.stream(method, path, headers=RIGHT | {"Origin": server.url}) as response:
            assert response.status_code not in (401, 403, 500), f"{method} {path}"


def test_nothing_else_is_served(http: httpx2.Client) -> None:
    for path in ("/", "/docs", "/redoc", "/openapi.json", "/v1", "/v1/jobs/"):
        response = http.get(path)
        assert response.status_code in (307, 404), path
        assert TOKEN not in response.text


def test_the_network_needs_authentication(site: Site) -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1", "quorate.example"):
        with pytest.raises(InsecureBindingError, match="refusing to listen on"):
            ApiServer(site.services(), Guard(None, user="alice"), host)


def test_loopback_may_go_without_but_not_for_browsers(site: Site) -> None:
    with ApiServer(site.services(), Guard(None, user="alice")) as server:
        assert WEB.get(f"{server.url}/v1/queues").status_code == 200
        assert WEB.get(f"{server.url}/v1/queues", headers={"Host": "evil.example"}).status_code == 403


def test_an_address_in_use_is_explained(site: Site, server: ApiServer) -> None:
    port = int(server.url.rpartition(":")[2])
    with pytest.raises(AddressError, match=r"Address already in use.*Choose another with --listen"):
        ApiServer(site.services(), Guard(TOKEN, user="alice"), port=port)


def test_other_tokens_are_those_that_somebody_knows(site: Site) -> None:
    def identify(token: str) -> Caller:
        if token == "away":
            raise IssuerUnreachableError("The identity provider is away.")
        if token == "ada":
            return Caller("ada")
        raise BadTokenError("the token is not valid: it has expired")

    with ApiServer(site.services(), Guard(TOKEN, user="alice", identify=identify)) as server:

        def ask(token: str) -> tuple[int, dict[str, Any]]:
            response = WEB.get(f"{server.url}/v1/whoami", headers={"Authorization": f"Bearer {token}"})
            return response.status_code, response.json()

        assert [ask(token)[1]["user"] for token in (TOKEN, "ada")] == ["alice", "ada"]
        assert ask("ada")[1]["owner"] is False
        status, problem = ask("old")
        assert (status, problem["detail"]) == (401, "Not authenticated: the token is not valid: it has expired.")
        # Not 401: a client that threw its token away would be wrong to.
        status, problem = ask("away")
        assert (status, problem["code"]) == (503, "issuer-unreachable")


def test_a_refusal_is_a_problem_of_rfc_9457(http: httpx2.Client) -> None:
    response = http.get("/v1/jobs/none", headers=RIGHT)
    assert response.headers["Content-Type"] == "application/problem+json"
    problem = response.json()
    assert {name: problem[name] for name in ("type", "title", "status", "detail", "instance")} == {
        "type": "urn:quorate:problem:unknown-job",
        "title": "Not Found",
        "status": 404,
        "detail": "There is no job none.",
        "instance": "/v1/jobs/none",
    }


def test_the_description_names_the_identity_providers(site: Site, http: httpx2.Client) -> None:
    def ways() -> list[str]:
        document = http.get("/v1/openapi.json", headers=RIGHT).json()
        assert [[name] for name in document["components"]["securitySchemes"]] == [
            list(way) for way in document["security"]
        ]
        return list(document["components"]["securitySchemes"])

    assert ways() == ["bearer"]
    site.access = AccessPolicy(IdentitySettings((OidcIssuer("https://id.example", "quorate"),)))
    assert ways() == ["bearer", "oidc-1"]
