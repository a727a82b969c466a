"""`quorate init` makes a repository that is valid, that editors understand, and that overwrites nothing."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from reconciler.cli.install_source import UnknownSourceError
from reconciler.documents.schemas import data_folder
from reconciler.gitops.source.tree import read_revision
from tests.reconciler.cli.conftest import Quorate

SOURCE = f"git+https://git.example.com/lab/quorate@{'0a' * 20}"


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


def test_it_is_committed_and_can_be_read_from_git(quorate: Quorate, tmp_path: Path) -> None:
    """The commit is made where nobody has told Git a name, too."""
    ran = quorate("init", str(tmp_path / "policy"))
    assert "first commit" in ran.out
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
        assert schema.read_text() == (data_folder("schemas") / schema.name).read_text()


@pytest.mark.parametrize(
    ("options", "written"),
    [
        ((), [".github/workflows/quorate-comment.yaml", ".github/workflows/quorate.yaml"]),
        (("--ci", "gitlab"), [".gitlab-ci.yml"]),
        (("--ci", "gitea"), [".gitea/workflows/quorate-comment.yaml", ".gitea/workflows/quorate.yaml"]),
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
    of_hosts = [*tmp_path.glob(".git[ehl]*/**/*.yaml"), *tmp_path.glob(".gitlab-ci.yml")]
    assert sorted(file.relative_to(tmp_path).as_posix() for file in of_hosts) == written


@pytest.mark.parametrize(
    "file",
    [
        ".github/workflows/quorate.yaml",
        ".gitlab-ci.yml",
        ".gitea/workflows/quorate.yaml",
        ".gitea/workflows/quorate-comment.yaml",
    ],
)
def test_ci_installs_what_one_file_says_and_fails_while_it_says_nothing(
    quorate: Quorate, tmp_path: Path, file: str
) -> None:
    """By its bare name Quorate would be whatever somebody registered under it."""
    hosts = ("--ci", "github", "--ci", "gitlab", "--ci", "gitea")
    quorate("init", str(tmp_path / "policy"), *hosts, "--install-from", SOURCE)
    folder, tools = tmp_path / "policy", tmp_path / "tools"
    tools.mkdir()
    (tools / "pip").write_text('#!/bin/sh\necho "pip $*"\n')
    (tools / "pip").chmod(0o700)

    def installs() -> tuple[int, str]:
        environment = {"PATH": f"{tools}:{os.environ['PATH']}"}
        ran = [
            subprocess.run(["bash", "-e", "-c", script], cwd=folder, env=environment, capture_output=True, text=True)
            for script in installing(yaml.safe_load((folder / file).read_text()))
        ]
        assert len({(done.returncode, done.stdout) for done in ran}) == 1
        return ran[0].returncode, ran[0].stdout

    code, said = installs()
    assert (code, said.split()[0], said.split()[-1]) == (0, "pip", ".quorate/requirements.txt")
    assert f"quorate @ {SOURCE}" in (folder / ".quorate/requirements.txt").read_text().splitlines()
    assert not re.search(r"install[^\n]* \"?quorate", (folder / file).read_text())
    (folder / ".quorate/requirements.txt").write_text("# nothing yet\n")
    code, said = installs()
    assert (code, "does not say yet" in said, "pip" in said) == (1, True, False)


def installing(ci: dict[str, Any]) -> list[str]:
    """The scripts by which a workflow or pipeline installs Quorate."""
    if "default" in ci:
        return ["\n".join(ci["default"]["before_script"])]
    return [step["run"] for job in ci["jobs"].values() for step in job["steps"] if step.get("name") == "Install"]


def test_where_nothing_is_known_to_install_from_it_is_said_and_the_rest_is_made(
    quorate: Quorate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(_: str) -> None:
        raise UnknownSourceError("it came from the moon")

    monkeypatch.setattr("reconciler.cli.init.own_source", unknown)
    ran = quorate("init", str(tmp_path / "policy"))
    assert (ran.exit_code, "it came from the moon" in ran.err, "requirements.txt" in ran.err) == (0, True, True)
    lines = (tmp_path / "policy/.quorate/requirements.txt").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == []
    assert quorate("init", str(tmp_path / "other"), "--ci", "none").err == ""


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
    assert subprocess.run(["git", "log", "--oneline"], cwd=tmp_path, check=True).returncode == 0


def test_a_repository_with_commits_gets_none_of_ours(quorate: Quorate, tmp_path: Path) -> None:
    """What it has, and nobody checked out, would be deleted by it."""
    quorate("init", str(tmp_path / "old"))
    subprocess.run(["git", "clone", "--quiet", "--no-checkout", "old", "new"], cwd=tmp_path, check=True)
    ran = quorate("init", str(tmp_path / "new"))
    assert (ran.exit_code, "has commits already" in ran.err, "first commit" in ran.out) == (0, True, False)


def test_what_comes_next_is_said_with_a_job_that_is_valid(quorate: Quorate, tmp_path: Path) -> None:
    ran = quorate("init", str(tmp_path / "my cluster"))
    at = f"'{tmp_path / 'my cluster'}'"
    assert [line.strip() for line in ran.out.splitlines()[1:]] == [
        f"quorate run --policies-repo {at}",
        f"quorate submit -f {at}/jobs/hello.yaml",
        "quorate why hello",
    ]
    assert quorate("validate", str(tmp_path / "my cluster/jobs/hello.yaml")).exit_code == 0
