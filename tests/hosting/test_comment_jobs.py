"""What `quorate init` writes for GitLab and Gitea, executed: a run that can't plan says so, and a schedule makes it the comment."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.hosting import gitlab_api
from tests.hosting.gitea_api import Gitea, ServedGitea, Storage
from tests.hosting.github_api import GitHub
from tests.hosting.gitlab_api import GitLab, ServedGitLab
from tests.hosting.runner import Runner, Trigger, workflow
from tests.reconciler.cli.conftest import Quorate, quorate

__all__ = ["quorate"]

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(not all(map(shutil.which, ("bash", "curl", "jq"))), reason="the jobs need bash, curl and jq"),
]

NO_PLAN = "<!-- quorate:plan:v1 -->\n### No plan of this commit\n"


class PolicyRepository(NamedTuple):
    """What `quorate init` made, and its one commit."""

    folder: Path
    head: str
    tools: Path


@pytest.fixture
def policy(quorate: Quorate, tmp_path: Path) -> PolicyRepository:
    folder, tools = tmp_path / "policy", tmp_path / "tools"
    tools.mkdir()
    assert quorate("init", str(folder), "--ci", "gitlab", "--ci", "gitea").exit_code == 0
    asked = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, check=True, capture_output=True, text=True)
    return PolicyRepository(folder, asked.stdout.strip(), tools)


def test_on_gitlab(policy: PolicyRepository, tmp_path: Path) -> None:
    jobs: Mapping[str, Any] = yaml.safe_load((policy.folder / ".gitlab-ci.yml").read_text())
    gitlab = GitLab()
    gitlab.opens(7, policy.head)
    runner = Runner(GitHub(), str(policy.folder), policy.tools)
    with ServedGitLab(gitlab) as server:
        told = {
            "CI_API_V4_URL": f"{server.url}/api/v4",
            "CI_PROJECT_ID": "5",
            "CI_PROJECT_PATH": "lab/policy",
            "CI_JOB_TOKEN": gitlab_api.JOB_TOKEN,
        }
        planned = runner.runs_gitlab(jobs["plan"], policy.head, policy.head, tmp_path / "plan", told)
        assert planned.codes["script"] != 0, planned.log  # There is no snapshot.
        left = (tmp_path / "plan/workspace/plan.md").read_bytes()
        gitlab.leaves(7, policy.head, left, status="failed")
        refused = runner.runs_gitlab(jobs["comment"], policy.head, "", tmp_path / "without", told)
        assert refused.codes == {"script": 6}, refused.log  # As in a pipeline that gets no protected variable.
        secret = {"QUORATE_HOST_TOKEN": gitlab_api.TOKEN}
        ran = runner.runs_gitlab(jobs["comment"], policy.head, "", tmp_path / "comment", told | secret)
    assert ran.passed, ran.log
    assert gitlab_api.TOKEN not in ran.log + planned.log
    (body,) = gitlab.bodies(7)
    assert body.startswith(NO_PLAN)


def test_on_gitea(policy: PolicyRepository, tmp_path: Path) -> None:
    checks, comment = (
        workflow(policy.folder / ".gitea/workflows" / name) for name in ("quorate.yaml", "quorate-comment.yaml")
    )
    gitea = Gitea()
    gitea.opens(7, policy.head)
    gitea.leaves(7, policy.head, None)
    (run,) = gitea.runs
    event = {"pull_request": {"head": {"repo": {"full_name": "lab/policy"}}}}
    runner = Runner(gitea, str(policy.folder), policy.tools)
    with ServedGitea(gitea), Storage(gitea):
        trigger = Trigger("pull_request", event, policy.head, run)
        planned = runner.runs(checks["jobs"]["plan"], trigger, tmp_path / "plan")
        assert planned is not None
        assert "Publish snapshots first" in planned.log
        assert planned.codes == {"Fetch the snapshot": 1, "Say what there is to say": 0}
        ran = runner.runs(comment["jobs"]["comment"], Trigger("schedule", {}, policy.head), tmp_path / "comment")
    assert ran is not None
    assert ran.passed, ran.log
    (body,) = gitea.bodies(7)
    assert body.startswith(NO_PLAN)
