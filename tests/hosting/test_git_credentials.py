"""The password for Git over https stands in ~/.netrc, and is replaced there beneath a control plane that fetches."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from reconciler.gitops.source.errors import GitSourceError
from reconciler.gitops.source.mirror import GitMirror
from tests.hosting import git_over_https
from tests.hosting.git_over_https import Host
from tests.reconciler.gitops.source.origin import Origin


def test_a_password_is_changed_between_two_fetches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    origin, home = Origin(tmp_path / "origin"), tmp_path / "home"
    origin.commit(
        {"policies/queue.yaml": "apiVersion: quorate.dev/v1\nkind: Queue\nmetadata: {name: team}\nspec: {}\n"}
    )
    (tmp_path / "served").mkdir()
    bare = tmp_path / "served" / "policy.git"
    subprocess.run(["git", "clone", "--quiet", "--bare", str(origin.folder), str(bare)], check=True)
    home.mkdir()
    with Host(tmp_path / "served") as host:
        monkeypatch.setenv("HOME", str(home))
        monkeypatch.setenv("GIT_SSL_CAINFO", str(host.certificate))

        def known_as(account: str) -> None:
            (home / ".netrc").write_text(f"machine 127.0.0.1 login {account} password {account}\n")

        mirror = GitMirror(tmp_path / "mirror.git", f"{host.url()}/git/policy.git")
        known_as("control-plane")
        first = mirror.fetch("main")
        monkeypatch.delitem(git_over_https.ACCOUNTS, "control-plane")
        with pytest.raises(GitSourceError):
            mirror.fetch("main")
        known_as("ci")
        assert mirror.fetch("main") == first
