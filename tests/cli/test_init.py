"""`quorate init` makes a repository that is valid, that editors understand, and that overwrites nothing."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from reconciler.gitsource.tree import read_revision
from reconciler.shipped import shipped
from tests.cli.conftest import Quorate


def test_a_new_repository_is_valid(quorate: Quorate, tmp_path: Path) -> None:
    folder = tmp_path / "policy"
    assert quorate("init", str(folder)).exit_code == 0
    assert quorate("validate", str(folder)) == (0, "valid\n", "")
    assert quorate("test", str(folder)).exit_code == 0


@pytest.mark.parametrize(
    ("kind", "spec", "gpus"),
    [
        ("MigGeometry", "{pool: h100, mode: bounded, layouts: [7x 1g.10gb]}", 8),
        ("MigGeometry", "{pool: h100, mode: bounded, layouts: [7x 1g.10gb], changes: {perPoolPerHour: 0}}", 8),
        ("MigGeometry", "{pool: h100, mode: free, changes: {drain: entitled}}", 8),
        ("MigGeometry", "{pool: h100, mode: fixed, layouts: [7x 1g.10gb]}", 7),
        ("SharingPolicy", "{pools: [h100], mode: mps}", 8),
    ],
)
def test_its_guarantee_holds_where_gpus_may_be_divided(
    quorate: Quorate, tmp_path: Path, kind: str, spec: str, gpus: int
) -> None:
    """Whole GPUs are lent and taken back as before: a GPU that a fixed layout divides is nobody's as a whole."""
    quorate("init", str(tmp_path))
    document = f"apiVersion: quorate.dev/v1\nkind: {kind}\nmetadata: {{name: divided}}\nspec: {spec}\n"
    (tmp_path / "policies" / "divided.yaml").write_text(document)
    written = tmp_path / "policies" / "tests" / "guarantees.yaml"
    written.write_text(
        written.read_text().replace("gpus: 8", f"gpus: {gpus}").replace("atLeast: 8", f"atLeast: {gpus}")
    )
    ran = quorate("test", str(tmp_path))
    assert (ran.exit_code, "1 passed, 0 failed" in ran.out) == (0, True), ran.out


def test_it_can_be_committed_and_read_from_git(quorate: Quorate, tmp_path: Path) -> None:
    quorate("init", str(tmp_path / "policy"))
    for arguments in (
        ["add", "--all"],
        ["-c", "user.name=A", "-c", "user.email=a@example.com", "commit", "-qm", "first"],
    ):
        subprocess.run(["git", *arguments], cwd=tmp_path / "policy", check=True)
    files = read_revision(tmp_path / "policy", "main").files
    assert files.refused == ()
    assert "policies/queues/team-a.yaml" in files.contents


def test_every_document_points_editors_at_a_schema(quorate: Quorate, tmp_path: Path) -> None:
    quorate("init", str(tmp_path))
    documents = [*tmp_path.glob("policies/**/*.yaml"), *tmp_path.glob("cluster-state/*.yaml")]
    assert len(documents) == 7
    for document in documents:
        hint = document.read_text().splitlines()[0]
        schema = (document.parent / hint.partition("$schema=")[2]).resolve()
        kind = next(yaml.safe_load_all(document.read_text()))["kind"]
        assert schema == tmp_path / ".quorate" / "schemas" / f"{kind.lower()}.json"
        assert schema.read_text() == (shipped("schemas") / schema.name).read_text()


@pytest.mark.parametrize(
    ("options", "written"),
    [
        ((), [".github/workflows/quorate-comment.yaml", ".github/workflows/quorate.yaml"]),
        (("--ci", "gitlab"), [".gitlab-ci.yml"]),
        (("--ci", "none"), []),
        (
            ("--ci", "github", "--ci", "gitlab"),
            [".github/workflows/quorate-comment.yaml", ".github/workflows/quorate.yaml", ".gitlab-ci.yml"],
        ),
    ],
)
def test_there_is_ci_for_the_hosts_that_are_asked_for(
    quorate: Quorate, tmp_path: Path, options: tuple[str, ...], written: list[str]
) -> None:
    assert quorate("init", str(tmp_path), *options).exit_code == 0
    of_hosts = [*tmp_path.glob(".git[hl]*/**/*.yaml"), *tmp_path.glob(".gitlab-ci.yml")]
    assert sorted(file.relative_to(tmp_path).as_posix() for file in of_hosts) == written


def test_whatever_installs_quorate_installs_this_version(quorate: Quorate, tmp_path: Path) -> None:
    quorate("init", str(tmp_path), "--ci", "github", "--ci", "gitlab")
    version = quorate("--version").out.split()[-1]
    named = {
        file.relative_to(tmp_path).as_posix(): set(re.findall(r"quorate==([^\"]+)", file.read_text()))
        for file in tmp_path.rglob("*.y*ml")
    }
    assert {file for file, versions in named.items() if versions == {version}} == {
        ".github/workflows/quorate.yaml",
        ".gitlab-ci.yml",
        ".pre-commit-config.yaml",
    }
    assert "@VERSION@" not in "".join(file.read_text() for file in tmp_path.rglob("*.y*ml"))


def test_no_ci_excludes_all_ci(quorate: Quorate, tmp_path: Path) -> None:
    ran = quorate("init", str(tmp_path / "new"), "--ci", "none", "--ci", "github")
    assert ran.exit_code == 64
    assert not (tmp_path / "new").exists()


def test_a_folder_with_something_in_it_is_left_alone(quorate: Quorate, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    ran = quorate("init", str(tmp_path))
    assert (ran.exit_code, ran.out) == (1, "")
    assert "is not empty" in ran.err
    assert [entry.name for entry in tmp_path.iterdir()] == ["mine"]


def test_an_empty_clone_is_filled(quorate: Quorate, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    assert quorate("init", str(tmp_path)).exit_code == 0
    assert quorate("validate", str(tmp_path)).exit_code == 0
