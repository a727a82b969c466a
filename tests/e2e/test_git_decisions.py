"""A real control plane that asks for signatures, hears a forge, is stopped and resumed, and is killed in between."""

from __future__ import annotations

import hashlib
import hmac
import signal
from pathlib import Path

import httpx2
import pytest

from reconciler.cli.main import run
from tests.e2e.control_plane import ControlPlane, until
from tests.reconciler.gitops.source.origin import QUEUE, Origin
from tests.reconciler.gitops.source.signing import SshKey, commit, needs_ssh

SECRET = "a secret of the forge"
PUSH = b'{"ref": "refs/heads/main"}'
SIGNED = {
    "X-GitHub-Event": "push",
    "X-Hub-Signature-256": "sha256=" + hmac.new(SECRET.encode(), PUSH, hashlib.sha256).hexdigest(),
}


class Story:
    """The control plane, polling once an hour, so that what happens happens because it was told; and its command line."""

    def __init__(self, plane: ControlPlane, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self._plane, self._patch = plane, patch
        self.ada = SshKey(folder, "ada")
        allowed, secret = folder / "allowed", folder / "secret"
        allowed.write_text(f"ada@example.com {self.ada.public}\n")
        secret.write_text(SECRET)
        secret.chmod(0o600)
        self._options = ("--poll", "1h", "--allowed-signers", str(allowed), "--webhook-secret", str(secret))

    def start(self) -> None:
        """Begin, or begin again."""
        self._plane.start(*self._options)
        self.url = self._plane.logged("listening")[-1]["url"]
        self._patch.setenv("QUORATE_SERVER", self.url)
        self._patch.setenv("QUORATE_TOKEN_FILE", str(self._plane.folder.token))

    def pushed(self) -> int:
        """What the webhook of the forge is answered."""
        return httpx2.post(f"{self.url}/v1/webhooks/github", content=PUSH, headers=SIGNED).status_code

    def truth(self) -> tuple[str, str]:
        """The revision in force, and why the newest is or is not."""
        with self._plane.client() as client:
            status = client.status()
        return status.last_applied_revision, status.conditions[0].reason


@pytest.mark.thorough
@needs_ssh
def test_from_an_unsigned_first_revision_to_an_accepted_rewrite(
    plane: ControlPlane, origin: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = Story(plane, tmp_path, monkeypatch)
    story.start()
    assert run(["reconcile", "--wait"]) == 1
    assert story.truth() == ("", "SignatureRefused")
    good = commit(origin, {"policies/one.yaml": QUEUE.replace("team", "one") % 1}, *story.ada.signing())
    assert story.pushed() == 202
    until("the push is followed", lambda: story.truth() == (good, "Applied"))

    commit(origin, {"policies/two.yaml": QUEUE.replace("team", "two") % 1})
    assert run(["reconcile", "--wait"]) == 1
    assert story.truth() == (good, "SignatureRefused")
    assert run(["apply", origin.git("rev-parse", "HEAD"), "--reason=let it in"]) == 1

    origin.git(*story.ada.signing(), "commit", "--quiet", "--amend", "--message=signed")
    assert run(["suspend-reconcile", "--reason=looking at it"]) == 0
    plane.signal(signal.SIGKILL)
    story.start()
    assert (story.pushed(), run(["reconcile", "--wait"])) == (202, 1)
    assert story.truth()[0] == good
    assert (run(["resume-reconcile"]), run(["reconcile", "--wait"])) == (0, 0)
    assert story.truth() == (origin.git("rev-parse", "HEAD"), "Applied")

    origin.git(*story.ada.signing(), "commit", "--quiet", "--amend", "--message=again")
    rewritten = origin.git("rev-parse", "HEAD")
    assert run(["reconcile", "--wait"]) == 1
    assert story.truth()[1] == "HistoryRewritten"
    assert run(["apply", rewritten[:12], "--reason=a better message"]) == 0
    assert run(["reconcile", "--wait"]) == 0
    assert story.truth() == (rewritten, "Applied")
    kinds = [event.kind for event in plane.events(rewritten)]
    assert kinds == ["policy-refused", "policy-approved", "policy-applied"]
