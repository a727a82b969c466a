"""What `quorate init` writes for CI is run as it stands, with the steps that install Quorate: from a wheel in the repository.

tests/hosting/test_pull_request.py has the rest, with a control plane and comments, and Quorate from the checkout.
"""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.krew import a_wheel
from reconciler.cli.exits import ExitCode
from reconciler.cli.inputs import read_policies
from solver.model.document import encode
from solver.model.quantities import Instant
from solver.model.snapshot import snapshot_of
from tests.hosting.gitea_api import Gitea, ServedGitea
from tests.hosting.github_api import GitHub, Served
from tests.hosting.runner import Ran, Runner, Trigger, workflow

pytestmark = pytest.mark.thorough

QUEUE = "policies/queues/team-a.yaml"
EVENT = {"pull_request": {"head": {"repo": {"full_name": "lab/policy"}}}}


@dataclass(frozen=True)
class Lab:
    """A policy repository that CI of all hosts checks out, and the environment of CI, in which Quorate is not installed yet."""

    folder: Path
    environment: Path
    tmp: Path

    @property
    def programs(self) -> Path:
        return self.environment / "bin"

    def git(self, *arguments: str) -> str:
        identity = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com", "-c", "commit.gpgsign=false")
        command = ["git", *identity, *arguments]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=True).stdout.strip()

    def proposes(self, branch: str, old: str, new: str) -> str:
        """A change of a queue on a branch of main's, merged with main as hosts do it; returns the merge."""
        self.git("switch", "--quiet", "--create", branch, "main")
        text = (self.folder / QUEUE).read_text()
        assert old in text
        (self.folder / QUEUE).write_text(text.replace(old, new))
        self.git("commit", "--quiet", "--all", "--message", branch)
        self.git("switch", "--quiet", "--create", f"{branch}-merge", "main")
        self.git("merge", "--quiet", "--no-ff", "--message", "merged", branch)
        sha = self.git("rev-parse", "HEAD")
        self.git("switch", "--quiet", "main")
        return sha

    def snapshot(self) -> bytes:
        """Of the cluster as it is: empty."""
        compiled = read_policies(self.folder)
        return encode(snapshot_of(Instant(time.time_ns() // 1_000_000), compiled.nodes, []))

    def runs(self, host: str, served: GitHub | Gitea, job: str, sha: str) -> tuple[Ran, Path]:
        """A job of a pull request's, in an environment without Quorate."""
        uninstall = [str(self.programs / "python"), "-m", "pip", "uninstall", "--quiet", "--yes", "quorate"]
        subprocess.run(uninstall, check=True, capture_output=True)
        assert not (self.programs / "quorate").exists()
        runner = Runner(served, str(self.folder), self.programs, installs=True)
        folder = self.tmp / f"{host}-{job}-{sha}"
        if host == "gitlab":
            jobs = yaml.safe_load((self.folder / ".gitlab-ci.yml").read_text())
            of_it = {**jobs["default"], **jobs[job]}
            ran: Ran | None = runner.runs_gitlab(of_it, sha, self.git("rev-parse", "main"), folder)
        else:
            jobs = workflow(self.folder / f".{host}/workflows/quorate.yaml")["jobs"]
            ran = runner.runs(jobs[job], Trigger("pull_request", EVENT, sha), folder)
        assert ran is not None
        assert (self.programs / "quorate").exists(), ran.log
        return ran, folder / "workspace"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    tmp = tmp_path_factory.mktemp("installed")
    wheel = a_wheel(tmp)
    lab = Lab(tmp / "policy", tmp / "environment", tmp)
    hosts = [option for host in ("github", "gitlab", "gitea") for option in ("--ci", host)]
    command = [
        sys.executable,
        "-m",
        "reconciler.cli.main",
        "init",
        str(lab.folder),
        "--install-from",
        str(wheel),
        *hosts,
    ]
    subprocess.run(command, check=True, capture_output=True)
    subprocess.run([sys.executable, "-m", "venv", str(lab.environment)], check=True)
    # What the wheel needs is there already, as in a cache of CI; Quorate itself is not. What an editable installation left is not
    # linked to: the wheel would be unpacked into it.
    (site,) = lab.environment.glob("lib/python*/site-packages")
    for each in Path(sysconfig.get_path("purelib")).iterdir():
        if not re.search("quorate|solver|reconciler", each.name) and not (site / each.name).exists():
            (site / each.name).symlink_to(each)
    return lab


@pytest.fixture(params=["github", "gitea", "gitlab"])
def host(request: pytest.FixtureRequest, lab: Lab) -> Iterator[tuple[str, Any]]:
    served: GitHub | Gitea = Gitea() if request.param == "gitea" else GitHub()
    served.assets["snapshot.json.gz"] = lab.snapshot()
    with ExitStack() as stack:
        stack.enter_context(ServedGitea(served) if isinstance(served, Gitea) else Served(served))
        yield request.param, served


def test_a_change_is_installed_for_checked_and_planned(lab: Lab, host: tuple[str, Any]) -> None:
    name, served = host
    sha = lab.proposes(f"{name}-more", "max: 16", "max: 12")
    for job in ("validate", "test") if name == "gitlab" else ("check",):
        ran, _ = lab.runs(name, served, job, sha)
        assert ran.passed, ran.log
        assert [*ran.codes] == (["script"] if name == "gitlab" else ["Install", "Validate", "Test"])
    ran, left = lab.runs(name, served, "plan", sha)
    assert ran.passed, ran.log
    comment = (left / ("comment.md" if name == "github" else "plan.md")).read_text()
    assert comment.startswith("<!-- quorate:plan:v1")
    assert "max 16 → 12" in comment
    assert (left / "plan.json").stat().st_size > 0
    # What ran is what was installed: nothing of the checkout that these tests are of.
    where = "import reconciler; print(reconciler.__file__)"
    found = subprocess.run(
        [lab.programs / "python", "-c", where], cwd=lab.tmp, capture_output=True, text=True, check=True
    )
    assert found.stdout.startswith(str(lab.environment))
    assert not (Path(sysconfig.get_path("purelib")) / "reconciler/cli").exists()


@pytest.mark.parametrize("host", ["github", "gitlab"], indirect=True)
def test_a_mistake_fails_the_check_with_its_place(lab: Lab, host: tuple[str, Any]) -> None:
    name, served = host
    sha = lab.proposes(f"{name}-mistake", "max: 16", "max: many")
    ran, _ = lab.runs(name, served, "validate" if name == "gitlab" else "check", sha)
    assert not ran.passed
    assert QUEUE in ran.log
    if name != "gitlab":
        assert (ran.codes["Install"], ran.codes["Validate"], "Test" in ran.codes) == (
            0,
            int(ExitCode.POLICY_INVALID),
            False,
        )
