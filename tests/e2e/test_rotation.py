"""Secrets are replaced beneath a control plane: the new one counts, the old one no more, and a spoilt file ends nothing."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Final

import httpx2
import pytest

from reconciler.access.tokens import create_token
from tests.e2e.control_plane import ControlPlane, until
from tests.reconciler.api.web import WEB

pytestmark = pytest.mark.thorough

PUSH: Final = json.dumps({"ref": "refs/heads/main"}).encode()
FIRST, SECOND, THIRD = ("m" * 40, "n" * 40, "o" * 40)


def written(path: Path, text: str) -> Path:
    """The file has this text from one moment to the next, as a person should replace it."""
    beside = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    beside.touch(mode=0o600)
    beside.write_text(text)
    beside.rename(path)
    return path


class Running:
    """A control plane with every secret that its API asks for, and what each door answers."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.tokens, self.own = folder / "tokens", plane.folder.token
        self.webhook, self.metrics = written(folder / "webhook", FIRST), written(folder / "metrics", FIRST)
        self.ada = create_token(self.tokens, "ada")
        plane.start(
            *("--tokens", str(self.tokens), "--webhook-secret", str(self.webhook)),
            *("--metrics-listen", "127.0.0.1:0", "--metrics-token", str(self.metrics)),
        )
        self.plane = plane
        self.at, self.figures = (plane.logged(event)[-1]["url"] for event in ("listening", "listening-for-metrics"))

    def shown(self, token: str) -> int:
        return WEB.get(f"{self.at}/v1/whoami", headers={"Authorization": f"Bearer {token}"}).status_code

    def scraped(self, token: str) -> int:
        return WEB.get(f"{self.figures}/metrics", headers={"Authorization": f"Bearer {token}"}).status_code

    def delivered(self, secret: str) -> int:
        mac = hmac.new(secret.encode(), PUSH, hashlib.sha256).hexdigest()
        headers = {"X-GitHub-Event": "push", "X-Hub-Signature-256": f"sha256={mac}"}
        return WEB.post(f"{self.at}/v1/webhooks/github", content=PUSH, headers=headers).status_code

    def unusable(self, path: Path) -> list[str]:
        return [line["problem"] for line in self.plane.logged("secret-unusable") if line["file"] == str(path)]


@pytest.fixture
def running(plane: ControlPlane, tmp_path: Path) -> Running:
    return Running(plane, tmp_path)


def test_each_secret_is_replaced_beneath_a_server_that_runs(running: Running) -> None:
    own = running.own.read_text().strip()
    with httpx2.Client(base_url=running.at) as kept:
        for path, old, answered, good in (
            (running.own, own, running.shown, 200),
            (running.metrics, FIRST, running.scraped, 200),
            (running.webhook, FIRST, running.delivered, 202),
        ):
            assert (answered(old), answered(SECOND)) == (good, 401), path
            written(path, f"{SECOND}\n{old}\n")
            assert (answered(SECOND), answered(old)) == (good, good), "both count while others are told of the new one"
            assert kept.get("/healthz").status_code == 200
            written(path, f"{SECOND}\n")
            assert (answered(SECOND), answered(old)) == (good, 401), "what was taken out counts no more"
        answers = [kept.get("/v1/whoami", headers={"Authorization": f"Bearer {one}"}) for one in (own, SECOND)]
        assert [answer.status_code for answer in answers] == [401, 200], "a connection that was open goes on"
    assert [line["file"] for line in running.plane.logged("secret-read")] == [
        str(path) for path in (running.own, running.metrics, running.webhook) for _ in range(2)
    ]
    written_slowly(running)
    a_user_comes_and_goes(running)
    assert running.plane.signal(signal.SIGTERM) == 0


def written_slowly(running: Running) -> None:
    """What was written of a file so far is not taken for a secret, though it is as long as one may be."""
    with running.webhook.open("w") as file:
        file.write(THIRD[:20])
        file.flush()
        os.fsync(file.fileno())
        assert (running.delivered(SECOND), running.delivered(THIRD[:20])) == (202, 401)
        file.write(THIRD[20:] + "\n")
    assert (running.delivered(SECOND), running.delivered(THIRD)) == (401, 202)


def a_user_comes_and_goes(running: Running) -> None:
    """Without a policy in force a user that is known is told to wait, and one that is not is refused."""
    bob = create_token(running.tokens, "bob")
    assert 401 not in (running.shown(running.ada), running.shown(bob))
    written(running.tokens, running.tokens.read_text().splitlines()[1] + "\n")
    assert running.shown(running.ada) == 401 != running.shown(bob)


def test_a_spoilt_file_ends_nothing_and_is_told(running: Running) -> None:
    own = running.own.read_text().strip()
    known = {running.own: own, running.metrics: FIRST, running.webhook: FIRST, running.tokens: running.ada}
    doors = {running.own: running.shown, running.metrics: running.scraped, running.webhook: running.delivered}
    for number, spoilt in enumerate(("", "half of it", None)):
        for path, answered in doors.items():
            path.unlink() if spoilt is None else path.write_text(spoilt)

            def told(path: Path = path, answered: Callable[[str], int] = answered, times: int = number) -> bool:
                assert answered(known[path]) in (200, 202), "what was read before goes on"
                return len(running.unusable(path)) > times

            until("it is told", told)
            before, known[path] = known[path], f"{number}" * 40
            written(path, f"{known[path]}\n")
            assert (answered(before), answered(known[path])) in ((401, 200), (401, 202)), "mended, without a restart"
    good = running.tokens.read_text()
    running.tokens.write_text(good + "half a li\n")
    assert running.shown(running.ada) != 401
    assert "2: this is no line of a token file" in running.unusable(running.tokens)[0]
    metrics = written(running.metrics, "half of it\n")
    owner = {"Authorization": f"Bearer {known[running.own]}"}
    (condition,) = (
        each
        for each in WEB.get(f"{running.at}/v1/status", headers=owner).json()["conditions"]
        if each["status"] and each["type"] == "SecretUnusable"
    )
    assert [str(path) in condition["message"] for path in (running.tokens, metrics, running.own)] == [True, True, False]
    figures = WEB.get(f"{running.at}/metrics", headers=owner).text
    for path, value in ((running.tokens, 1), (metrics, 1), (running.own, 0), (running.webhook, 0)):
        assert f'quorate_secret_unusable{{file="{path}"}} {value}.0' in figures
