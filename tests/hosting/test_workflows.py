"""What `quorate init` writes for CI keeps the rules by which somebody who may only open a pull request gains nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from reconciler.cli.main import cli
from tests.hosting.runner import evaluated, workflow

HOSTS = Path(__file__).parents[2] / "reconciler/cli/hosts"
CHECKS, COMMENT = (HOSTS / "github/.github/workflows" / name for name in ("quorate.yaml", "quorate-comment.yaml"))
GITEA, GITEA_COMMENT = (HOSTS / "gitea/.gitea/workflows" / name for name in ("quorate.yaml", "quorate-comment.yaml"))
WORKFLOWS = [CHECKS, COMMENT, GITEA, GITEA_COMMENT]
GITLAB = HOSTS / "gitlab/.gitlab-ci.yml"
UPLOAD = "https://code.forgejo.org/forgejo/upload-artifact"
SAFE = {"github.token", "github.event.merge_group.base_sha"}
"""Expressions whose value no author of a pull request chooses."""
COMMAND = re.compile(r"^quorate ((?:[^\n]|\\\n)+)", re.MULTILINE)


def called(file: Path) -> str:
    return file.relative_to(HOSTS).as_posix()


def steps(file: Path) -> Iterator[dict[str, Any]]:
    for job in workflow(file)["jobs"].values():
        yield from job["steps"]


def test_there_is_nothing_but_what_is_looked_at_here() -> None:
    assert sorted(path for path in HOSTS.rglob("*") if path.is_file()) == sorted([*WORKFLOWS, GITLAB])


@pytest.mark.parametrize("file", WORKFLOWS, ids=called)
def test_no_script_is_made_of_what_others_wrote(file: Path) -> None:
    """An expression in a script is put in before the shell reads it; in a variable it is only text."""
    for step in steps(file):
        assert "${{" not in step.get("run", "")
        for value in step.get("env", {}).values():
            assert re.fullmatch(r"\$\{\{ ([\w.]+) \}\}", value)[1] in SAFE  # type: ignore[index]


@pytest.mark.parametrize("file", WORKFLOWS, ids=called)
def test_actions_are_few_and_pinned_to_commits(file: Path) -> None:
    used = {step["uses"] for step in steps(file) if "uses" in step}
    assert all(re.fullmatch(rf"(actions/[a-z-]+|{UPLOAD})@[0-9a-f]{{40}}", action) for action in used)
    assert len(used) <= 3


@pytest.mark.parametrize("file", [*WORKFLOWS, GITLAB], ids=called)
def test_there_are_no_secrets(file: Path) -> None:
    assert "secrets" not in file.read_text()
    assert "pull_request_target" not in file.read_text()


@pytest.mark.parametrize(
    ("file", "events"),
    [(CHECKS, {"pull_request", "merge_group", "push"}), (GITEA, {"pull_request", "push"})],
    ids=["github", "gitea"],
)
def test_what_a_pull_request_runs_may_only_read(file: Path, events: set[str]) -> None:
    checks = workflow(file)
    assert set(checks["on"]) == events
    assert checks["permissions"] == {"contents": "read"}
    assert all("permissions" not in job for job in checks["jobs"].values())
    for step in steps(file):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


@pytest.mark.parametrize(
    ("file", "event_name", "head", "planned"),
    [
        (CHECKS, "pull_request", "lab/policy", True),
        (CHECKS, "pull_request", "mallory/policy", False),
        (CHECKS, "merge_group", None, True),
        (CHECKS, "push", None, False),
        (GITEA, "pull_request", "lab/policy", True),
        (GITEA, "pull_request", "mallory/policy", False),
        (GITEA, "push", None, False),
    ],
)
def test_a_fork_gets_no_plan(file: Path, event_name: str, head: str | None, planned: bool) -> None:
    event = {"pull_request": {"head": {"repo": {"full_name": head}}}} if head else {}
    github = {"event_name": event_name, "event": event, "repository": "lab/policy"}
    jobs = workflow(file)["jobs"]
    assert bool(evaluated(jobs["plan"]["if"], {"github": github})) is planned
    assert "if" not in jobs["check"]
    assert "snapshot" not in yaml.safe_dump(jobs["check"])


def test_what_may_write_runs_nothing_of_the_pull_request() -> None:
    comment = workflow(COMMENT)
    assert comment["on"] == {"workflow_run": {"workflows": [workflow(CHECKS)["name"]], "types": ["completed"]}}
    assert comment["permissions"] == {}
    job = comment["jobs"]["comment"]
    assert job["permissions"] == {"actions": "read", "pull-requests": "write"}
    assert all("uses" not in step for step in job["steps"])
    assert not re.search(r"\b(git|pip|quorate|python|source|eval)\s", "".join(step["run"] for step in job["steps"]))


def test_on_gitea_what_may_write_is_the_default_branchs_on_a_schedule() -> None:
    """No event of a pull request starts it, and no secret is stored that any workflow could read."""
    comment = workflow(GITEA_COMMENT)
    assert set(comment["on"]) == {"schedule"}
    assert comment["permissions"] == {"actions": "read", "contents": "read", "pull-requests": "write"}
    assert set(comment["jobs"]) == {"comment"}
    job = comment["jobs"]["comment"]
    assert "permissions" not in job
    assert all(set(step.get("with", {})) <= {"python-version", "persist-credentials"} for step in job["steps"])
    assert [step["name"] for step in job["steps"] if step.get("env")] == ["Comment"]


def test_on_gitlab_what_may_write_runs_on_a_schedule_of_the_protected_default_branch_alone() -> None:
    jobs = yaml.safe_load(GITLAB.read_text())
    assert [rule["if"] for rule in jobs["comment"]["rules"]] == [
        '$CI_PIPELINE_SOURCE == "schedule" && $CI_COMMIT_BRANCH == $CI_DEFAULT_BRANCH && $CI_COMMIT_REF_PROTECTED == "true"'
    ]
    for name in ("validate", "test"):
        assert jobs[name]["rules"][0] == {"if": '$CI_PIPELINE_SOURCE == "schedule"', "when": "never"}
    assert "QUORATE_HOST_TOKEN" not in yaml.safe_dump(jobs)  # The job's environment has it; no script says it.


def test_gitlab_gives_a_fork_no_plan_and_shows_what_was_found() -> None:
    jobs = yaml.safe_load(GITLAB.read_text())
    assert [rule["if"] for rule in jobs["plan"]["rules"]] == [
        '$CI_PIPELINE_SOURCE == "merge_request_event" && $CI_MERGE_REQUEST_SOURCE_PROJECT_ID == $CI_PROJECT_ID'
    ]
    assert jobs["validate"]["artifacts"]["reports"] == {"codequality": "gl-code-quality-report.json"}
    assert jobs["test"]["artifacts"]["reports"] == {"junit": "quorate-tests.xml"}
    assert jobs["plan"]["artifacts"]["paths"] == ["plan.html", "plan.md", "plan.json"]
    named = set(re.findall(r"\$\{?(\w+)", GITLAB.read_text()))
    assert {name for name in named if not name.startswith("CI_")} == {"base"}


@pytest.mark.parametrize(
    ("file", "used"),
    [
        (CHECKS, {"validate", "test", "plan"}),
        (GITLAB, {"validate", "test", "plan", "comment"}),
        (GITEA, {"validate", "test", "plan"}),
        (GITEA_COMMENT, {"comment"}),
    ],
    ids=["github", "gitlab", "gitea", "gitea-comment"],
)
def test_every_command_is_one_that_quorate_has(file: Path, used: set[str]) -> None:
    commands = [
        line.split(" > ")[0].split()
        for script in _scripts(file)
        for line in COMMAND.findall(script.replace("\\\n", " "))
    ]
    assert {command[0] for command in commands} == used
    for name, *arguments in commands:
        command = cli.get_command(click.Context(cli), name)
        options = {option for known in command.params for option in known.opts} if command else set()
        assert {argument for argument in arguments if argument.startswith("-")} <= options


def _scripts(file: Path) -> Iterator[str]:
    if file == GITLAB:
        for job in yaml.safe_load(file.read_text()).values():
            yield from job.get("script", ())
        return
    for step in steps(file):
        yield step.get("run", "")
