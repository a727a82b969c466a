"""Deliveries of forges: only genuine pushes to the branch that is followed have Git looked at."""

from __future__ import annotations

import hashlib
import hmac
import json
from urllib.parse import urlencode

import httpx2
import pytest

from reconciler.api.guard import Guard
from reconciler.api.server import ApiServer
from tests.reconciler.api.conftest import TOKEN, WEBHOOK_SECRET, Site
from tests.reconciler.api.web import WEB

PUSH = json.dumps({"ref": "refs/heads/main", "after": "a" * 40, "commits": [{"id": 1}]}).encode()
FORM = urlencode({"payload": PUSH.decode()}).encode()


def mac(body: bytes, secret: bytes = WEBHOOK_SECRET) -> str:
    return hmac.new(secret, body, hashlib.sha256).hexdigest()


def github(body: bytes, event: str = "push", secret: bytes = WEBHOOK_SECRET) -> dict[str, str]:
    return {"X-GitHub-Event": event, "X-Hub-Signature-256": f"sha256={mac(body, secret)}"}


def gitea(body: bytes, event: str = "push") -> dict[str, str]:
    return {"X-Gitea-Event": event, "X-Gitea-Signature": mac(body)}


def gitlab(event: str = "Push Hook", token: str = WEBHOOK_SECRET.decode()) -> dict[str, str]:
    return {"X-Gitlab-Event": event, "X-Gitlab-Token": token}


def deliver(server: ApiServer, forge: str, body: bytes, headers: dict[str, str]) -> httpx2.Response:
    return WEB.post(f"{server.url}/v1/webhooks/{forge}", content=body, headers=headers)


OF_A_TAG = PUSH.replace(b"heads", b"tags")
OF_ANOTHER = PUSH.replace(b"main", b"other")


@pytest.mark.parametrize(
    ("forge", "body", "headers", "woken"),
    [
        ("github", PUSH, github(PUSH), True),
        ("github", FORM, github(FORM) | {"Content-Type": "application/x-www-form-urlencoded"}, True),
        ("gitea", PUSH, gitea(PUSH), True),
        ("gitlab", PUSH, gitlab(), True),
        ("github", PUSH, github(PUSH, "ping"), False),
        ("gitea", PUSH, gitea(PUSH, "issues"), False),
        ("gitlab", PUSH, gitlab("Tag Push Hook"), False),
        ("github", OF_A_TAG, github(OF_A_TAG), False),
        ("github", OF_ANOTHER, github(OF_ANOTHER), False),
        ("github", b"{", github(b"{"), False),
        ("github", b"\xff=", github(b"\xff=") | {"Content-Type": "application/x-www-form-urlencoded"}, False),
        ("github", b'{"ref": 7}', github(b'{"ref": 7}'), False),
        ("gitlab", b"[]", gitlab(), False),
    ],
)
def test_a_genuine_delivery(
    server: ApiServer, site: Site, forge: str, body: bytes, headers: dict[str, str], woken: bool
) -> None:
    answered = deliver(server, forge, body, headers)
    assert (answered.status_code, answered.json()["woken"], site.looks) == (202, woken, int(woken))


@pytest.mark.parametrize(
    ("forge", "headers"),
    [
        ("github", {"X-GitHub-Event": "push"}),
        ("github", {"X-GitHub-Event": "push", "X-Hub-Signature-256": "sha256="}),
        ("github", github(PUSH, secret=b"another secret of us")),
        ("github", github(PUSH + b" ")),
        ("github", gitlab()),
        ("github", {"X-GitHub-Event": "push", "Authorization": f"Bearer {TOKEN}"}),
        ("gitea", github(PUSH) | {"X-Gitea-Event": "push"}),
        ("gitlab", gitlab(token="")),
        ("gitlab", gitlab(token=WEBHOOK_SECRET.decode() + "x")),
        ("gitlab", {"X-Gitlab-Event": "Push Hook", "X-Gitlab-Token": "gr\xfc\xdfe"}),
    ],
)
def test_a_delivery_that_is_not_genuine(server: ApiServer, site: Site, forge: str, headers: dict[str, str]) -> None:
    encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    answered = WEB.post(f"{server.url}/v1/webhooks/{forge}", content=PUSH, headers=encoded)
    assert (answered.status_code, answered.json()["code"], site.looks) == (401, "not-authenticated", 0)


def test_a_delivery_says_nothing_about_where_to_fetch_from_and_opens_no_other_route(server: ApiServer) -> None:
    answered = WEB.post(f"{server.url}/v1/policy/reconcile", content=PUSH, headers=github(PUSH))
    assert answered.status_code == 401


def test_without_a_secret_no_delivery_is_heard(site: Site) -> None:
    site.webhook_secrets = ()
    with ApiServer(site.services(), Guard(TOKEN, user="alice")) as server:
        for forge, headers in (("github", github(PUSH, secret=b"")), ("gitlab", gitlab(token=""))):
            answered = deliver(server, forge, PUSH, headers)
            assert (answered.status_code, answered.json()["code"]) == (404, "no-webhooks")
    assert site.looks == 0


def test_a_delivery_is_bounded(server: ApiServer, site: Site) -> None:
    body = b" " * 1_000_001
    assert deliver(server, "github", body, github(body)).status_code == 413
    assert site.looks == 0
