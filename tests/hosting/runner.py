"""Runs a job of a workflow as the runners of GitHub, Gitea and GitLab do: its own shell steps, in bash, in a clean checkout."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.hosting.gitea_api import Gitea
from tests.hosting.github_api import PROJECT, REPOSITORY, TOKEN, GitHub, archive

_BASH = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c")
"""As GitHub runs a step with `shell: bash`."""
_WORD = re.compile(r"\$\{\{|\}\}|[!&|=]+|[()]|'[^']*'|[\w.]+|\s+")
_OPERATORS = {"&&": "and", "||": "or", "!": "not"}


def workflow(file: Path) -> dict[str, Any]:
    """A workflow; what YAML 1.1 takes for true is its `on`."""
    read: dict[str, Any] = yaml.safe_load(file.read_text())
    on = read.pop(True)  # type: ignore[call-overload]
    return {"on": on, **read}


def evaluated(expression: str, context: Mapping[str, Any]) -> Any:
    """An expression of GitHub's, as far as the workflows use them: names, strings, ==, &&, ||, ! and cancelled()."""
    values: list[Any] = []

    def part(word: re.Match[str]) -> str:
        text = word.group()
        if text in ("==", "(", ")") or text.isspace():
            return text
        if text in _OPERATORS:
            return f" {_OPERATORS[text]} "
        if text in ("${{", "}}"):
            return ""
        values.append(_value(text, context))
        return f"values[{len(values) - 1}]"

    translated = _WORD.sub(part, expression.replace("cancelled()", "cancelled"))
    return eval(translated.strip(), {"__builtins__": {}}, {"values": values})


def _value(word: str, context: Mapping[str, Any]) -> Any:
    if word.startswith("'"):
        return word.strip("'")
    if word == "cancelled":
        return False
    # What is not there is "", and so is every part of it.
    known: Any = context
    for name in word.split("."):
        known = (known.get(name) or "") if isinstance(known, dict) else ""
    return known


class Trigger(NamedTuple):
    """What a workflow runs for: the event, the commit that GITHUB_SHA says, and the number of the run."""

    name: str
    event: Mapping[str, Any]
    sha: str
    run: int = 1


@dataclass
class Ran:
    """What became of one job: the exit code of each shell step that ran, by its name, and all that was printed."""

    codes: dict[str, int] = field(default_factory=dict)
    log: str = ""

    @property
    def passed(self) -> bool:
        return not any(self.codes.values())


@dataclass(frozen=True)
class Runner:
    """A machine that runs jobs for a repository host."""

    github: GitHub | Gitea
    """Which host its runs are of: their workflows look the same."""
    clone_url: str
    tools: Path
    """A folder for `quorate` as a command."""
    installs: bool = False
    """Whether steps install Quorate, into the environment whose programs are in `tools`; else the checkout's is there already."""

    def runs(self, job: Mapping[str, Any], trigger: Trigger, folder: Path) -> Ran | None:
        """The job in a new folder; None where its condition does not hold."""
        said = {
            "event_name": trigger.name,
            "event": trigger.event,
            "repository": REPOSITORY,
            "token": self.github.token,
        }
        if not evaluated(job.get("if", "'yes'"), {"github": said}):
            return None
        (folder / "workspace").mkdir(parents=True)
        (folder / "event.json").write_text(json.dumps(trigger.event))
        ran = Ran()
        for step in job["steps"]:
            if ran.passed or evaluated(step.get("if", "''"), {"github": said}):
                self._step(step, {"github": said}, trigger, folder, ran)
        return ran

    def runs_gitlab(
        self, job: Mapping[str, Any], sha: str, base: str, folder: Path, more: dict[str, str] | None = None
    ) -> Ran:
        """A job of GitLab's on a merge request from within the project. `more`: other variables. With what is before its script."""
        workspace = folder / "workspace"
        workspace.mkdir(parents=True)
        self._checkout(workspace, sha)
        told = {
            "CI_API_V4_URL": self.github.url,
            "CI_PROJECT_ID": PROJECT,
            "CI_JOB_TOKEN": TOKEN,
            "CI_COMMIT_SHA": sha,
            "CI_MERGE_REQUEST_DIFF_BASE_SHA": base,
        }
        # GitLab's runner makes one script of the lines, and another of those that come after it, whatever became of it.
        ran = Ran()
        for part in ("script", "after_script"):
            if part in job:
                before = job.get("before_script", ()) if self.installs and part == "script" else ()
                done = subprocess.run(
                    [*_BASH, "\n".join([*before, *job[part]])],
                    cwd=workspace, env=self._environment(folder, sha) | told | (more or {}), capture_output=True, text=True,
                )  # fmt: skip
                ran.codes[part] = done.returncode
                ran.log += done.stdout + done.stderr
        return ran

    def _step(
        self, step: Mapping[str, Any], context: Mapping[str, Any], trigger: Trigger, folder: Path, ran: Ran
    ) -> None:
        workspace, uses = folder / "workspace", step.get("uses", "").partition("@")[0]
        if uses == "actions/checkout":
            self._checkout(workspace, trigger.sha)
        elif uses.endswith("/upload-artifact"):
            self._upload(workspace, step["with"], trigger.run)
        elif "run" in step and (self.installs or step["name"] != "Install"):
            named = {name: str(evaluated(said, context)) for name, said in step.get("env", {}).items()}
            environment = self._environment(folder, trigger.sha) | named
            done = subprocess.run([*_BASH, step["run"]], cwd=workspace, env=environment, capture_output=True, text=True)
            ran.codes[step["name"]] = done.returncode
            ran.log += done.stdout + done.stderr

    def _environment(self, folder: Path, sha: str) -> dict[str, str]:
        tool = self.tools / "quorate"
        if not self.installs and not tool.exists():
            root = Path(__file__).parents[2]
            tool.write_text(f'#!/bin/sh\nPYTHONPATH={root} exec {sys.executable} -m reconciler.cli.main "$@"\n')
            tool.chmod(0o700)
        return {
            "PATH": f"{self.tools}:{os.environ['PATH']}",
            "HOME": str(folder),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "GITHUB_SHA": sha,
            "GITHUB_REPOSITORY": REPOSITORY,
            "GITHUB_API_URL": self.github.url,
            "GITHUB_SERVER_URL": self.github.server_url,
            "GITHUB_BASE_REF": "main",
            "GITHUB_EVENT_PATH": str(folder / "event.json"),
            "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
        }

    def _checkout(self, workspace: Path, sha: str) -> None:
        for command in (
            ("init", "--quiet"),
            ("fetch", "--quiet", self.clone_url, "+refs/heads/*:refs/remotes/origin/*", "+refs/pull/*:refs/pull/*"),
            ("checkout", "--quiet", "--detach", sha),
        ):
            subprocess.run(["git", *command], cwd=workspace, check=True, capture_output=True)

    def _upload(self, workspace: Path, said: Mapping[str, Any], run: int) -> None:
        file = workspace / said["path"]
        if file.exists():
            self.github.uploads(run, said["name"], archive({file.name: file.read_bytes()}))
