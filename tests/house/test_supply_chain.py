"""Licences, advisories and secrets: what may not be shipped is found, and what nobody answered is never taken for good."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from hack.supply_chain import __main__ as supply_chain
from hack.supply_chain.advisories import Audit, read
from hack.supply_chain.leaks import MODULE, gitleaks, leaks
from hack.supply_chain.licences import ALLOWED, allows, licence_of, objections
from hack.supply_chain.packages import Package, locked
from hack.supply_chain.problem import ProblemError

MADE_UP = "ghp_" + "A1b2C3d4E5f6G7h8I9j0" + "K1l2M3n4O5p6Q7r8"
"""Has the form of a token of GitHub's, and opens nothing."""


def test_everything_that_is_shipped_may_be() -> None:
    packages = tuple(locked())
    assert [str(error) for error in objections(packages)] == []
    assert {"click", "psycopg"} <= {package.name for package in packages}


@pytest.mark.parametrize(
    ("licence", "allowed"),
    [
        ("MIT", True),
        ("GPL-3.0-only", False),
        ("MIT OR GPL-3.0-only", True),
        ("MIT AND GPL-3.0-only", False),
        ("Apache-2.0 AND (MIT OR AGPL-3.0-only)", True),
        ("LGPL-3.0-only", False),
    ],
)
def test_of_several_licences_one_is_chosen_or_all_hold(licence: str, allowed: bool) -> None:
    assert allows(ALLOWED, licence) is allowed


def a_package(folder: Path, monkeypatch: pytest.MonkeyPatch, *stated: str) -> Package:
    """One that is installed, and says this of itself."""
    told = folder / "oddity-1.0.dist-info"
    told.mkdir(parents=True)
    (told / "METADATA").write_text(
        "\n".join(["Metadata-Version: 2.4", "Name: oddity", "Version: 1.0", *stated, "", ""])
    )
    monkeypatch.syspath_prepend(str(folder))
    return Package("oddity", "1.0", ())


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ("License-Expression: AGPL-3.0-only", "oddity 1.0: AGPL-3.0-only is not allowed"),
        ("License: as you like", "oddity: its metadata name no licence of SPDX's"),
        ("Summary: nothing", "oddity: its metadata name no licence of SPDX's"),
    ],
)
def test_a_licence_that_is_not_allowed_or_not_known_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stated: str, said: str
) -> None:
    (error,) = objections([a_package(tmp_path, monkeypatch, stated)])
    assert str(error).startswith(said)
    assert error.fix


def test_a_licence_is_read_from_where_it_is_stated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = a_package(tmp_path, monkeypatch, "License-Expression: MIT OR Apache-2.0")
    assert licence_of(package) == "MIT OR Apache-2.0"
    with pytest.raises(ProblemError, match=r"oddity 2.0 is locked, version 1.0 is installed"):
        licence_of(package._replace(version="2.0"))


def test_a_lock_without_hashes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("# made\nclick==8.0\n")
    with pytest.raises(ProblemError, match="lock:2: no version with hashes"):
        list(locked(tmp_path / "lock"))


def answered(*packages: Mapping[str, object]) -> Audit:
    return read(json.dumps({"dependencies": packages, "fixes": []}))


def test_what_nobody_answered_for_is_not_taken_for_sound() -> None:
    """pip-audit itself ends with 0 and "No known vulnerabilities found" then."""
    sound = {"name": "click", "version": "8", "vulns": []}
    skipped = {"name": "rich", "skip_reason": "Dependency not found"}
    assert answered(sound) == Audit((), 1, "")
    assert answered(sound, skipped) == Audit((), 1, "Dependency not found")
    assert answered() == Audit((), 0, "pip-audit looked at no package")
    assert read("", "Traceback\nConnectionError: nobody there\n") == Audit((), 0, "ConnectionError: nobody there")
    assert read("") == Audit((), 0, "pip-audit said nothing")


def test_an_advisory_is_an_error_with_the_version_that_mends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"id": "PYSEC-1", "fix_versions": ["8.2"]}
    audit = answered({"name": "click", "version": "8", "vulns": [known, {"id": "PYSEC-2", "fix_versions": []}]})
    assert audit.found == ("click 8: PYSEC-1, fixed in 8.2", "click 8: PYSEC-2, without a fix")
    for name, told in (("audited", audit), ("objections", ()), ("leaks", ())):
        monkeypatch.setattr(supply_chain, name, lambda *_, told=told: told)
    ran = CliRunner().invoke(supply_chain.main)
    assert (ran.exit_code, "error: click 8: PYSEC-1, fixed in 8.2" in ran.output) == (1, True)


def test_what_could_not_be_asked_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: bool) -> tuple[str, ...]:
        raise ProblemError("gitleaks", "it is not installed, nor is Go, which builds it", "Install one of both.")

    monkeypatch.setattr(supply_chain, "audited", lambda: Audit((), 0, "nobody answers"))
    monkeypatch.setattr(supply_chain, "leaks", missing)
    ran = CliRunner().invoke(supply_chain.main)
    assert ran.exit_code == 0, ran.output
    assert "SKIPPED: advisories of all packages, because nobody answers" in ran.output
    assert "SKIPPED: secrets, because gitleaks: it is not installed" in ran.output


def test_without_gitleaks_and_go_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("hack.supply_chain.leaks.USUAL_GO", tmp_path / "go")
    with pytest.raises(ProblemError, match="Install one of both"):
        gitleaks()


@pytest.mark.thorough
@pytest.mark.skipif(
    not (shutil.which("gitleaks") or shutil.which("go")),
    reason="neither gitleaks nor Go, which builds it, is installed",
)
def test_a_secret_that_was_committed_once_is_found_after_it_is_deleted(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        identity = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com", "-c", "commit.gpgsign=false")
        ran = subprocess.run(["git", *identity, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True)
        return ran.stdout.strip()

    git("init", "--quiet")
    (tmp_path / "settings").write_text("nothing = 1\n")
    git("add", ".")
    git("commit", "--quiet", "--message", "begin")
    assert leaks(True, tmp_path) == ()
    (tmp_path / "settings").write_text(f'nothing = 1\ntoken = "{MADE_UP}"\n')
    git("commit", "--quiet", "--all", "--message", "a mistake")
    commit = git("rev-parse", "HEAD")
    (tmp_path / "settings").unlink()
    git("commit", "--quiet", "--all", "--message", "regret")
    assert leaks(False, tmp_path) == (f"{commit[:12]}:settings:2: github-pat",)
    (tmp_path / ".gitleaksignore").write_text(f"{commit}:settings:github-pat:2\n")
    assert leaks(True, tmp_path) == ()


def test_gitleaks_is_built_from_what_is_locked() -> None:
    assert (MODULE / "go.sum").stat().st_size > 0
    assert "github.com/zricethezav/gitleaks/v8 v8." in (MODULE / "go.mod").read_text()
