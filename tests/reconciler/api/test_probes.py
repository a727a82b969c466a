"""Probes are answered without a token, under any Host and while everything else waits; figures of pods by their address."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Event as Flag
from threading import Semaphore
from typing import Any, cast

import pytest

from reconciler.access.policy import AccessPolicy, RoleBinding
from reconciler.api.guard import Guard
from reconciler.api.rules import RULES
from reconciler.api.server import ApiServer
from reconciler.client import Client
from reconciler.protocols.job_source import JobSource
from tests.reconciler.api.conftest import TOKEN, Site
from tests.reconciler.api.people import identify
from tests.reconciler.api.web import WEB

OWNER = {"Authorization": f"Bearer {TOKEN}"}
OPEN = sorted(route.partition(" ")[2] for route, rule in RULES.items() if rule == "open")
THREADS = 60
"""More than answer requests at once: 40, unless a program tells anyio otherwise."""


def bearer(user: str) -> dict[str, str]:
    return {"Authorization": f"Bearer token-of-{user}"}


@pytest.mark.parametrize("host", ["10.244.1.7:7717", "[fd00::7]:7717", "localhost", "evil.example", ""])
@pytest.mark.parametrize("token", [{}, {"Authorization": "Bearer wrong"}, OWNER])
def test_a_probe_says_yes_or_no_and_nothing_else(
    site: Site, server: ApiServer, host: str, token: dict[str, str]
) -> None:
    def asked(path: str) -> tuple[int, str]:
        response = WEB.get(f"{server.url}{path}", headers={"Host": host, "Origin": "http://evil.example", **token})
        return response.status_code, response.text

    assert OPEN == ["/healthz", "/readyz"]
    assert [asked(path) for path in OPEN] == [(200, "ok\n")] * 2
    site.ready = False
    assert [asked(path) for path in OPEN] == [(200, "ok\n"), (503, "no\n")]


def test_a_client_asks_whether_a_server_is_ready(site: Site, client: Client) -> None:
    assert client.ready()
    site.ready = False
    assert not client.ready()


def test_probes_are_answered_while_every_thread_waits(site: Site) -> None:
    """As for a database that hangs: were the answer late, the kubelet would kill a control plane that only waits."""
    come, go_on, services = Semaphore(0), Flag(), site.services()
    users = [f"viewer-{number}" for number in range(THREADS)]  # one alone can't take all threads
    site.access = AccessPolicy(roles=(RoleBinding("viewer", tuple(f"user:{user}" for user in users)),))

    class Hanging:
        def __getattr__(self, name: str) -> Any:
            def hang(*given: object, **named: object) -> Any:
                come.release()
                assert go_on.wait(60)
                return getattr(services.jobs, name)(*given, **named)

            return hang

    hanging = cast("JobSource", Hanging())
    with (
        ApiServer(replace(services, jobs=hanging), Guard(TOKEN, user="alice", identify=identify)) as server,
        ThreadPoolExecutor(THREADS) as callers,
    ):
        asked = [callers.submit(WEB.get, f"{server.url}/v1/jobs", headers=bearer(user)) for user in users]
        for _ in range(40):
            assert come.acquire(timeout=60)
        assert not come.acquire(blocking=False)
        answers = [WEB.get(f"{server.url}{path}", timeout=10).status_code for path in OPEN]
        go_on.set()
        assert answers == [200, 200]
        assert {each.result().status_code for each in asked} == {200}


@pytest.mark.parametrize(
    ("host", "token", "status"),
    [
        ("10.244.1.7:7717", OWNER, 200),
        ("[fd00::7]:7717", OWNER, 200),
        ("127.0.0.1", OWNER, 200),
        ("10.244.1.7:7717", {}, 401),
        ("10.244.1.7.evil.example", OWNER, 403),
        ("evil.example", OWNER, 403),
        ("0x0af40107", OWNER, 403),
        ("10.244.1", OWNER, 403),
        ("", OWNER, 403),
    ],
)
def test_figures_are_given_by_address_to_those_with_a_token(
    server: ApiServer, host: str, token: dict[str, str], status: int
) -> None:
    assert WEB.get(f"{server.url}/metrics", headers={"Host": host, **token}).status_code == status


def test_a_page_of_another_site_gets_no_figures(server: ApiServer) -> None:
    headers = {**OWNER, "Host": "10.244.1.7:7717", "Origin": "http://evil.example"}
    assert WEB.get(f"{server.url}/metrics", headers=headers).status_code == 403
