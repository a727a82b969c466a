"""From `quorate init` to the plan on a pull request, its merge and what follows, with real Git over HTTPS and real processes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
import yaml

from reconciler.client import Client
from solver.model.quantities import Cpu, Memory
from solver.model.shape import Shape
from solver.model.workload import JobName, JobSpec, QueueName, TaskGroup
from tests.e2e.control_plane import ControlPlane, until
from tests.hosting.git_over_https import Host
from tests.hosting.gitea_api import Gitea, ServedGitea, Storage
from tests.hosting.github_api import GitHub, Served
from tests.hosting.runner import Ran, Runner, Trigger, workflow
from tests.reconciler.gitops.source.signing import SshKey

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        not all(map(shutil.which, ("bash", "curl", "jq", "unzip", "openssl", "ssh-keygen"))),
        reason="it needs these programs",
    ),
]

QUEUE, SETTINGS = "policies/queues/team-a.yaml", "policies/scheduling.yaml"
ACCESS = """\
apiVersion: quorate.dev/v1
kind: AccessPolicy
metadata: {name: access}
spec:
  commits:
    signatures: required
    signers: [{name: ada, ssh: "%s"}]
    forgeKeys: [{name: forge, ssh: "%s"}]
"""
MERGE_REF = "refs/pull/1/merge"
MARKER = "<!-- quorate:plan:v1 -->"


class Person:
    """Somebody with a clone, who signs commits."""

    def __init__(self, folder: Path, url: str, key: SshKey) -> None:
        self.folder = folder
        self.key = key
        self.git("clone", "--quiet", url, str(folder), cwd=folder.parent)

    def git(self, *arguments: str, cwd: Path | None = None) -> str:
        identity = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com", *self.key.signing())
        return subprocess.run(
            ["git", *identity, *arguments], cwd=cwd or self.folder, check=True, capture_output=True, text=True
        ).stdout.strip()

    def pushes(self, branch: str, file: str, old: str, new: str) -> str:
        """Change a file on a branch, begun where main is if there is none yet, and push it; returns the commit."""
        known = self.git("branch", "--list", branch)
        self.git("switch", "--quiet", *([] if known else ["--create"]), branch, *([] if known else ["origin/main"]))
        before = (self.folder / file).read_text()
        assert old in before
        (self.folder / file).write_text(before.replace(old, new))
        self.git("commit", "--quiet", "--all", "--message", f"{old} becomes {new}")
        self.git("push", "--quiet", "origin", branch)
        return self.git("rev-parse", "HEAD")


@dataclass
class Lab:
    """A repository host with its runners, and a control plane that follows the repository."""

    github: GitHub
    host: Host
    plane: ControlPlane
    ada: Person
    runner: Runner
    folder: Path
    forge_key: SshKey
    runs: int = 0

    @property
    def bare(self) -> Path:
        return self.host.folder / "policy.git"

    def merges(self, head: str) -> str:
        """Ada merges a pull request: she pushes the commit that the host made of it."""
        made = self.merge_commit(head)
        self.ada.git("fetch", "--quiet", "origin", MERGE_REF)
        self.ada.git("push", "--quiet", "origin", f"{made}:refs/heads/main")
        return made

    def merge_commit(self, head: str) -> str:
        """What GitHub makes of a pull request to main, signed with its own key."""
        identity = ("-c", "user.name=host", "-c", "user.email=host@example.com", *self.forge_key.signing())
        tree = _git(self.bare, "merge-tree", "--write-tree", "main", head)
        made = _git(
            self.bare, *identity, "commit-tree", "-S", tree, "-p", "main", "-p", head, "-m", "Merge pull request"
        )
        _git(self.bare, "update-ref", MERGE_REF, made)
        return made

    def publishes(self) -> None:
        """What the timer beside the control plane does."""
        with self.plane.client() as client:
            environment = {**os.environ, "QUORATE_SERVER": client.server}
        environment["QUORATE_TOKEN"] = self.plane.folder.token.read_text().strip()
        file = self.folder / "snapshot.json.gz"
        subprocess.run(
            [sys.executable, "-m", "reconciler.cli.main", "snapshot", "export", "--alias", "--out", str(file)],
            env=environment, check=True, capture_output=True,
        )  # fmt: skip
        self.github.assets["snapshot.json.gz"] = file.read_bytes()

    def ci(self, number: int, head: str) -> dict[str, Ran]:
        """The workflows of the pull request's merge commit, and then the comment's, of main, as GitHub would run them."""
        self.runs += 1
        self.publishes()
        self.github.heads[number] = head
        sha = self.merge_commit(head)
        event = {"pull_request": {"head": {"repo": {"full_name": "lab/policy"}}}}
        trigger = Trigger("pull_request", event, sha, self.runs)
        jobs = self._workflow(sha, "quorate") | self._workflow("main", "quorate-comment")
        told = Trigger("workflow_run", self.github.event(self.runs, number, head), _git(self.bare, "rev-parse", "main"))
        ran = {
            name: self.runner.runs(job, told if name == "comment" else trigger, self.folder / f"{name}-{self.runs}")
            for name, job in jobs.items()
        }
        return {name: of for name, of in ran.items() if of is not None}

    def gitlab(self, job: str, head: str) -> tuple[Ran, Path]:
        """A job of GitLab's on a merge request that begins at main, and the folder with what it left."""
        jobs = yaml.safe_load(_git(self.bare, "show", f"{head}:.gitlab-ci.yml"))
        base = _git(self.bare, "merge-base", "main", head)
        folder = self.folder / f"gitlab-{job}-{head}"
        return self.runner.runs_gitlab(jobs[job], head, base, folder), folder / "workspace"

    def gitea(self, number: int, head: str) -> str:
        """The comment on a pull request of Gitea's: its own run has left the plan, and a schedule of main has made it one."""
        gitea = Gitea(assets=dict(self.github.assets))
        gitea.opens(number, head)
        gitea.leaves(number, head, None)
        (run,) = gitea.runs
        event = {"pull_request": {"head": {"repo": {"full_name": "lab/policy"}}}}
        runner = replace(self.runner, github=gitea)
        with ServedGitea(gitea), Storage(gitea):
            for name, job, trigger in (
                ("quorate", "plan", Trigger("pull_request", event, head, run)),
                ("quorate-comment", "comment", Trigger("schedule", {}, _git(self.bare, "rev-parse", "main"))),
            ):
                steps = self._workflow(trigger.sha, name, ".gitea")[job]
                ran = runner.runs(steps, trigger, self.folder / f"gitea-{job}-{number}")
                assert ran is not None
                assert ran.passed, ran.log
        (body,) = gitea.bodies(number)
        return body

    def _workflow(self, revision: str, name: str, host: str = ".github") -> dict[str, Any]:
        file = self.folder / f"{name}.yaml"
        file.write_text(_git(self.bare, "show", f"{revision}:{host}/workflows/{name}.yaml"))
        jobs: dict[str, Any] = workflow(file)["jobs"]
        return jobs


def _git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """The policy of `quorate init`, hosted and in force; team A may hold no more than its 8 GPUs, and commits are signed."""
    host_folder, tools = tmp_path / "host", tmp_path / "tools"
    host_folder.mkdir()
    tools.mkdir()
    _git(tmp_path, "init", "--quiet", "--bare", "--initial-branch=main", str(host_folder / "policy.git"))
    host = Host(host_folder)
    monkeypatch.setenv("GIT_SSL_CAINFO", f"{host.certificate}.crt")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    github = GitHub()
    with host, Served(github):
        adas, forges = SshKey(tmp_path, "ada-key"), SshKey(tmp_path, "forge-key")
        ada = Person(tmp_path / "ada", f"{host.url('ada')}/git/policy.git", adas)
        command = [
            sys.executable,
            "-m",
            "reconciler.cli.main",
            "init",
            str(ada.folder),
            "--ci",
            "github",
            "--ci",
            "gitlab",
            "--ci",
            "gitea",
        ]
        subprocess.run(command, check=True, capture_output=True)
        for file, old, new in (
            (QUEUE, "max: 16", "max: 8"),
            (SETTINGS, "spec: {", "spec: {guardrails: {maxQuotaCutPercent: 50}, "),
        ):
            (ada.folder / file).write_text((ada.folder / file).read_text().replace(old, new))
        (ada.folder / "policies/access.yaml").write_text(ACCESS % (adas.public, forges.public))
        ada.git("add", "--all")
        ada.git("commit", "--quiet", "--amend", "--message", "First policy")
        ada.git("push", "--quiet", "origin", "HEAD:main")
        ada.git("fetch", "--quiet")
        plane = ControlPlane(f"{host.url('control-plane')}/git/policy.git", tmp_path / "state")
        plane.start()
        try:
            plane.until_ready()
            runner = Runner(github, f"{host.url('ci')}/git/policy.git", tools)
            yield Lab(github, host, plane, ada, runner, tmp_path, forges)
        finally:
            plane.end()


def test_a_quota_change_from_the_pull_request_to_its_effect(lab: Lab) -> None:
    runs, waits = (_submitted(lab, name) for name in ("first", "second"))
    until("the first runs", lambda: runs() == "running")
    assert waits() == "queued"

    # Not enough: the plan says so.
    head = lab.ada.pushes("more-for-a", QUEUE, "max: 8", "max: 12")
    ran = lab.ci(1, head)
    assert {name: job.passed for name, job in ran.items()} == {"check": True, "plan": True, "comment": True}, ran
    (small,) = lab.github.bodies(1)
    assert small.startswith(f"{MARKER}\n")
    assert "no job fares differently" in small
    assert "`max 8 → 12 H100-SXM5-80GB`" in small
    (linked,) = re.findall(r"\(https://github.example.com/lab/policy/actions/runs/\d+/artifacts/(\d+)\)", small)
    with ZipFile(BytesIO(lab.github.artifacts[int(linked)].archive)) as page:
        assert "<bdi>max 8 → 12 H100-SXM5-80GB</bdi>" in page.read("plan.html").decode()

    # Enough: the same comment says that now, of a job that has another name.
    head = lab.ada.pushes("more-for-a", QUEUE, "max: 12", "max: 16")
    assert lab.ci(1, head)["comment"].passed
    (large,) = lab.github.bodies(1)
    assert "1 job starts now that would not" in large
    assert "`max 8 → 16 H100-SXM5-80GB`" in large
    assert re.search(r"`[a-z]+-\d+-[0-9a-f]{12}`", large)
    assert "second" not in large

    # On GitLab it is the same.
    planned, left = lab.gitlab("plan", head)
    assert planned.passed, planned.log
    assert all("1 job starts now that would not" in (left / f"plan.{kind}").read_text() for kind in ("md", "html"))
    tested, left = lab.gitlab("test", head)
    assert tested.passed
    assert "<testcase" in (left / "quorate-tests.xml").read_text()

    # On Gitea the schedule says it in the pull request.
    said = lab.gitea(1, head)
    assert said.startswith(f"{MARKER}\n")
    assert "1 job starts now that would not" in said
    assert "[All of it as a page](https://gitea.example.com/lab/policy/actions/runs/100/artifacts/quorate-page)" in said

    # Somebody else's pull request cuts too much at once, and is not even valid after its next commit.
    ran = lab.ci(2, lab.ada.pushes("cut", QUEUE, "guaranteed: 8", "guaranteed: 2"))
    assert ran["plan"].codes["Plan"] == 5, ran["plan"].log
    (refused,) = lab.github.bodies(2)
    assert "**Refused: the change breaks 1 guardrail.**" in refused
    typo = lab.ada.pushes("cut", QUEUE, "guaranteed: 2", "guarenteed: 2")
    ran = lab.ci(2, typo)
    assert ran["check"].codes == {"Validate": 3}
    assert "::error file=policies/queues/team-a.yaml" in ran["check"].log
    validated, left = lab.gitlab("validate", typo)
    assert validated.codes == {"script": 3}
    assert "guarenteed" in validated.log
    assert "policies/queues/team-a.yaml" in (left / "gl-code-quality-report.json").read_text()
    (none,) = lab.github.bodies(2)
    assert none.splitlines()[:2] == [MARKER, "### No plan of this commit"]
    assert "artifacts" not in none
    assert lab.github.wrote == ["new comment on 1", "comment 1000", "new comment on 2", "comment 2000"]

    # Merged, it is in force, and does what the plan said.
    merged = lab.merges(head)
    until("the second runs", lambda: waits() == "running")
    with lab.plane.client() as client:
        assert client.status().last_applied_revision == merged


def _submitted(lab: Lab, name: str) -> Callable[[], str]:
    """A job of 8 GPUs of team A; what is returned says how it stands."""
    group = TaskGroup("worker", 1, Shape(gpus=8, cpu=Cpu(1), memory=Memory(2**26)))
    spec = JobSpec(QueueName("team-a"), (group,), command=("sleep", "600"))

    def ask(of: Callable[[Client], object]) -> object:
        with lab.plane.client() as client:
            return of(client)

    ask(lambda client: client.submit(JobName(name), spec, idempotency_key=name))
    return lambda: str(ask(lambda client: client.job(JobName(name)).state))
