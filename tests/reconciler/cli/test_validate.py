"""`quorate validate`, in the words and formats that people, programs and GitHub get."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from reconciler.documents.schemas import data_folder
from tests.reconciler.cli.conftest import Quorate

QUEUE = """\
apiVersion: quorate.dev/v1
kind: Queue
metadata: {name: vision}
spec:
  parent: reserch
  quota:
    - {gpuType: H100, guarenteed: 8}
"""
RESEARCH = "apiVersion: quorate.dev/v1\nkind: Queue\nmetadata: {name: research}\nspec: {weight: -1}\n"

TEXT = """\
policies/notes.bak:1:1: warning[not-read]: nothing reads this file
    Documents end in .yaml; delete or rename it.
policies/research.yaml:4:16: error[out-of-range]: spec.weight is -1, at least 1 is allowed
policies/vision.yaml:7:23: error[unknown-field]: there is no field 'guarenteed' in spec.quota[0]
    Did you mean guaranteed?
2 errors, 1 warning
"""
GITHUB = """\
::error file=policies/research.yaml,line=4,col=16,title=out-of-range::spec.weight is -1, at least 1 is allowed.
::error file=policies/vision.yaml,line=7,col=23,title=unknown-field::there is no field 'guarenteed' in spec.quota[0]. \
Did you mean guaranteed?
::warning file=policies/notes.bak,line=1,col=1,title=not-read::nothing reads this file. \
Documents end in .yaml; delete or rename it.
2 errors, 1 warning
"""


@pytest.fixture
def invalid(tmp_path: Path) -> Path:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "vision.yaml").write_text(QUEUE)
    (tmp_path / "policies" / "research.yaml").write_text(RESEARCH)
    (tmp_path / "policies" / "notes.bak").touch()
    return tmp_path


@pytest.mark.parametrize(("output", "expected"), [("text", TEXT), ("github", GITHUB)])
def test_problems_are_printed(quorate: Quorate, invalid: Path, output: str, expected: str) -> None:
    assert quorate("validate", str(invalid), "-o", output) == (3, expected, "")


def test_problems_are_data_for_programs(quorate: Quorate, invalid: Path) -> None:
    ran = quorate("validate", str(invalid), "-o", "json")
    report = json.loads(ran.out)
    assert (ran.exit_code, report["apiVersion"], report["kind"]) == (3, "quorate.dev/v1", "ValidationReport")
    assert report["valid"] is False
    assert report["problems"][2] == {
        "file": "policies/vision.yaml",
        "line": 7,
        "column": 23,
        "code": "unknown-field",
        "message": "there is no field 'guarenteed' in spec.quota[0]",
        "fix": "Did you mean guaranteed?",
        "severity": "error",
    }


def test_ci_systems_read_it_too(quorate: Quorate, invalid: Path) -> None:
    said = {output: quorate("validate", str(invalid), "-o", output) for output in ("sarif", "junit", "gitlab")}
    assert {ran.exit_code for ran in said.values()} == {3}
    (run,) = json.loads(said["sarif"].out)["runs"]
    assert [result["ruleId"] for result in run["results"]] == ["out-of-range", "unknown-field", "not-read"]
    assert '<testsuite name="quorate validate" tests="3" failures="2" errors="0">' in said["junit"].out
    assert [entry["severity"] for entry in json.loads(said["gitlab"].out)] == ["major", "major", "minor"]


def test_warnings_alone_are_valid(quorate: Quorate, tmp_path: Path) -> None:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "a,b%.bak").touch()
    (tmp_path / "policies" / "none.yaml").touch()
    ran = quorate("validate", str(tmp_path), "-o", "github")
    assert ran.exit_code == 0
    assert "file=policies/a%2Cb%25.bak," in ran.out


def test_the_shipped_example_is_valid(quorate: Quorate) -> None:
    assert quorate("validate", str(data_folder("policies").parent)) == (0, "valid\n", "")


def test_a_folder_without_policy_is_an_error(quorate: Quorate, tmp_path: Path) -> None:
    ran = quorate("validate", str(tmp_path))
    assert (ran.exit_code, ran.out) == (1, "")
    assert "no policy repository here" in ran.err
    assert "quorate init" in ran.err


def test_a_folder_of_a_repository_is_told_with_the_repository(quorate: Quorate, tmp_path: Path) -> None:
    (tmp_path / "policies" / "queues").mkdir(parents=True)
    ran = quorate("validate", str(tmp_path / "policies" / "queues"))
    assert (ran.exit_code, f"It lies in one: quorate validate {os.path.relpath(tmp_path)}\n" in ran.err) == (1, True)


def test_a_path_that_does_not_exist_is_a_usage_error(quorate: Quorate, tmp_path: Path) -> None:
    assert quorate("validate", str(tmp_path / "nowhere")).exit_code == 64


def test_a_job_file_is_checked_alone(quorate: Quorate, tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("apiVersion: quorate.dev/v1\nkind: Job\nmetadata: {name: a}\nspec: {queue: q, taskGroups: []}\n")
    ran = quorate("validate", str(job))
    assert ran.exit_code == 3
    assert ran.out == (
        f"{job}:4:30: error[out-of-range]: spec.taskGroups has 0 items, at least 1 is needed\n1 error, 0 warnings\n"
    )


@pytest.mark.parametrize(("year", "told"), [(2020, True), (9000, False)])
def test_hours_and_reservations_that_are_over_are_warned_of(
    quorate: Quorate, tmp_path: Path, year: int, told: bool
) -> None:
    repeat = f'from: "{year}-01-01T20:00:00Z", repeat: {{rule: "FREQ=DAILY;COUNT=3", duration: 10h, timeZone: Etc/UTC}}'
    for folder in ("policies", "cluster-state"):
        (tmp_path / folder).mkdir()
    head = "apiVersion: quorate.dev/v1\nkind: %s\nmetadata: {name: %s}\n"
    queue = head % ("Queue", "vision") + f"spec:\n  hours:\n    - {{name: nights, weight: 3, {repeat}}}\n"
    pool = (
        head % ("NodePool", "h") + "spec: {gpuType: H100, gpusPerNode: 8, cpu: 8, memory: 1Gi, nodes: {names: [a]}}\n"
    )
    kept = head % ("Reservation", "demo") + f"spec: {{{repeat}, queue: vision, nodes: [a]}}\n"
    (tmp_path / "policies" / "vision.yaml").write_text(f"{queue}---\n{kept}")
    (tmp_path / "cluster-state" / "nodes.yaml").write_text(pool)
    ran = quorate("validate", str(tmp_path))
    fix = "    Let the rule end later, or leave its end out.\n"
    warned = "warning[windows-over]: the last window of"
    text = f"""\
policies/vision.yaml:6:1: {warned} hours nights of queue vision ended at 2020-01-04T06:00:00Z: it comes no more
{fix}policies/vision.yaml:10:1: {warned} Reservation demo ended at 2020-01-04T06:00:00Z: it comes no more
{fix}0 errors, 2 warnings
"""
    assert ran == (0, text if told else "valid\n", "")
