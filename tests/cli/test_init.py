"""`quorate init` makes a repository that is valid, that editors understand, and that overwrites nothing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import yaml

from reconciler.gitsource.tree import read_revision
from reconciler.shipped import shipped
from tests.cli.conftest import Quorate


def test_a_new_repository_is_valid(quorate: Quorate, tmp_path: Path) -> None:
    folder = tmp_path / "policy"
    assert quorate("init", str(folder)).exit_code == 0
    assert quorate("validate", str(folder)) == (0, "valid\n", "")
    assert quorate("test", str(folder)).exit_code == 0


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


def test_the_workflow_runs_this_version(quorate: Quorate, tmp_path: Path) -> None:
    quorate("init", str(tmp_path))
    workflow = yaml.safe_load((tmp_path / ".github/workflows/quorate.yaml").read_text())
    steps = [step.get("run", "") for step in workflow["jobs"]["validate"]["steps"]]
    version = quorate("--version").out.split()[-1]
    assert f'pip install "quorate=={version}"' in steps
    assert "quorate validate . -o github" in steps


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
