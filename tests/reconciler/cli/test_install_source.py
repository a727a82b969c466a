"""CI installs Quorate from where it came, or from what was named, and never by its bare name from a public index."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from reconciler.cli.install_source import UnknownSourceError, named_source, source_of
from tests.reconciler.cli.conftest import Quorate

COMMIT, HASH = "0123456789abcdef" * 2 + "01234567", "ab" * 32
WHEEL = f"https://files.example.com/quorate-0.1.0-py3-none-any.whl#sha256={HASH}"


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.com")
    ran = subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return ran.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Source code that was cloned from a host, with nothing changed since."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch", "main")
    (folder / "pyproject.toml").write_text("[project]\n")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "first")
    git(folder, "remote", "add", "origin", "https://ada:secret@git.example.com/lab/quorate.git")
    git(folder, "update-ref", "refs/remotes/origin/main", "HEAD")
    return folder


def noted(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def of_folder(folder: Path) -> bytes:
    return noted(url=folder.as_uri(), dir_info={"editable": True})


def vcs(url: str) -> bytes:
    return noted(url=url, vcs_info={"vcs": "git", "requested_revision": "main", "commit_id": COMMIT})


@pytest.mark.parametrize(
    ("said", "line"),
    [
        (vcs("https://git.example.com/lab/quorate.git"), f"git+https://git.example.com/lab/quorate.git@{COMMIT}"),
        (vcs("https://token@git.example.com/quorate"), f"git+https://git.example.com/quorate@{COMMIT}"),
        (vcs("ssh://git@git.example.com/lab/quorate"), f"git+ssh://git@git.example.com/lab/quorate@{COMMIT}"),
        (noted(url=WHEEL.partition("#")[0], archive_info={"hashes": {"sha256": HASH}}), WHEEL),
    ],
)
def test_an_installation_from_a_url_is_repeated(said: bytes, line: str) -> None:
    assert source_of(said, ".quorate").lines == (f"quorate @ {line}",)


def test_a_checkout_is_installed_by_its_commit_from_where_it_was_cloned(checkout: Path) -> None:
    commit = git(checkout, "rev-parse", "HEAD")
    assert source_of(of_folder(checkout), ".quorate").lines == (
        f"quorate @ git+https://git.example.com/lab/quorate.git@{commit}",
    )
    git(checkout, "remote", "set-url", "origin", "git@git.example.com:lab/quorate.git")
    assert source_of(of_folder(checkout), ".quorate").lines == (
        f"quorate @ git+ssh://git@git.example.com/lab/quorate.git@{commit}",
    )


def test_a_part_of_a_repository_is_named(checkout: Path) -> None:
    (checkout / "tools").mkdir()
    assert source_of(of_folder(checkout / "tools"), ".quorate").lines[0].endswith("#subdirectory=tools")


def test_a_commit_that_others_do_not_have_is_not_named(checkout: Path, tmp_path: Path) -> None:
    (checkout / "pyproject.toml").write_text("[project]\nname = 'changed'\n")
    with pytest.raises(UnknownSourceError, match="files were changed"):
        source_of(of_folder(checkout), ".quorate")
    git(checkout, "commit", "--quiet", "--all", "--message", "second")
    with pytest.raises(UnknownSourceError, match="is on no remote yet"):
        source_of(of_folder(checkout), ".quorate")
    (tmp_path / "unpacked").mkdir()
    with pytest.raises(UnknownSourceError, match="no Git repository"):
        source_of(of_folder(tmp_path / "unpacked"), ".quorate")


@pytest.mark.parametrize(
    "said",
    [
        vcs("file:///srv/quorate"),
        vcs("git://git.example.com/quorate"),
        vcs("http://git.example.com/quorate"),
        vcs("https://git.example.com/a b"),
        noted(url="https://files.example.com/quorate-0.1.0-py3-none-any.whl", archive_info={}),
        noted(url="file:///absent/quorate-0.1.0-py3-none-any.whl", archive_info={"hashes": {"sha256": HASH}}),
    ],
)
def test_what_others_can_not_reach_or_trust_is_not_named(said: bytes) -> None:
    with pytest.raises(UnknownSourceError):
        source_of(said, ".quorate")


@pytest.mark.parametrize(
    "named", [f"git+https://git.example.com/quorate@{COMMIT}", f"git+ssh://git@host/quorate@{COMMIT}", WHEEL]
)
def test_a_named_url_is_taken_as_it_is(named: str) -> None:
    assert named_source(named, ".quorate").lines == (f"quorate @ {named}",)


@pytest.mark.parametrize(
    ("named", "problem"),
    [
        ("git+https://git.example.com/quorate@main", "doesn't name a commit"),
        ("git+https://git.example.com/quorate", "doesn't name a commit"),
        (WHEEL.partition("#")[0], "has no hash"),
        ("absent-0.1.0.whl", "is not there"),
        ("quorate==0.1.0", "is no place to install from"),
        ("http://packages.example.com/simple", "is no place"),
        ("https://packages.example.com/simple\n--pre", "is no place"),
    ],
)
def test_what_can_be_exchanged_is_refused(quorate: Quorate, tmp_path: Path, named: str, problem: str) -> None:
    ran = quorate("init", str(tmp_path / "new"), "--install-from", named)
    assert (ran.exit_code, problem in " ".join(ran.err.split())) == (64, True)
    assert not (tmp_path / "new").exists()


def test_an_index_that_is_named_is_the_only_one_that_is_asked(quorate: Quorate) -> None:
    version = quorate("--version").out.split()[-1]
    assert named_source("https://packages.example.com/simple", ".quorate").lines == (
        "--index-url https://packages.example.com/simple",
        f"quorate=={version}",
    )


def test_a_wheel_is_put_into_the_repository(quorate: Quorate, tmp_path: Path) -> None:
    wheel = tmp_path / "quorate-0.1.0-py3-none-any.whl"
    wheel.write_bytes(b"the wheel")
    folder = tmp_path / "policy"
    assert quorate("init", str(folder), "--install-from", str(wheel)).exit_code == 0
    lines = (folder / ".quorate/requirements.txt").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == [f"./.quorate/{wheel.name}"]
    assert git(folder, "show", f"HEAD:.quorate/{wheel.name}") == "the wheel"
