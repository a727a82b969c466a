"""The workflow that may write trusts nothing that a pull request's author could have made up."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.hosting.github_api import BOT, Artifact, GitHub, Served, archive
from tests.hosting.runner import Ran, Runner, Trigger, workflow

ROOT = Path(__file__).parents[2]
COMMENT = ROOT / "reconciler/cli/hosts/github/.github/workflows/quorate-comment.yaml"
MARKER = "<!-- quorate:plan:v1 -->"
PLAN = f'{MARKER}\n### 1 job starts\n\n`$(touch pwned)` "quoted" ü\n'
SHA = "a" * 40

pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, ("bash", "curl", "jq", "unzip"))), reason="the workflow needs bash, curl, jq and unzip"
)


@pytest.fixture
def github() -> Iterator[GitHub]:
    made = GitHub(heads={7: SHA})
    with Served(made):
        yield made


def comments(github: GitHub, folder: Path, left: dict[str, bytes], number: int | None = 7, sha: str = SHA) -> Ran:
    """One run of the workflow, after a run of `quorate` that left these files as its comment."""
    run = len(github.artifacts) + 1
    github.artifacts.append(Artifact(run, "quorate-comment", archive(left)))
    trigger = Trigger("workflow_run", github.event(run, number, sha), "b" * 40)
    job = workflow(COMMENT)["jobs"]["comment"]
    ran = Runner(github, "", folder).runs(job, trigger, folder / f"run-{run}")
    assert ran is not None
    return ran


def test_one_comment_is_made_and_then_updated(github: GitHub, tmp_path: Path) -> None:
    for _ in range(100):  # It is on the second page of comments.
        github.comment(7, "ada", "I like it")
    assert comments(github, tmp_path, {"comment.md": PLAN.encode()}).passed
    assert github.bodies(7) == [PLAN]
    assert comments(github, tmp_path, {"comment.md": f"{MARKER}\nnewer".encode()}).passed
    assert github.bodies(7) == [f"{MARKER}\nnewer"]
    assert github.wrote == ["new comment on 7", "comment 7100"]
    assert list(tmp_path.rglob("pwned")) == []


def test_a_comment_links_to_the_page_that_the_host_says_there_is(github: GitHub, tmp_path: Path) -> None:
    """Beside the longest comment that is taken there is room for it. Its archive is never fetched."""
    long = f"{MARKER}\n".encode().ljust(60_000, b"x")
    github.artifacts.append(Artifact(2, "quorate-page", b"not even an archive"))
    assert comments(github, tmp_path, {"comment.md": long}).passed
    (body,) = github.bodies(7)
    assert body.startswith(long.decode())
    address = "https://github.example.com/lab/policy/actions/runs/2/artifacts/0"
    assert f"[All of it as a page]({address}), " in body
    assert len(body) < 65_536


def test_a_page_of_another_run_is_not_linked(github: GitHub, tmp_path: Path) -> None:
    github.artifacts.append(Artifact(1, "quorate-page", b""))
    assert comments(github, tmp_path, {"comment.md": PLAN.encode()}).passed
    assert github.bodies(7) == [PLAN]


def test_only_the_bots_own_comment_with_the_same_marker_is_touched(github: GitHub, tmp_path: Path) -> None:
    github.comment(7, "mallory", f"{MARKER}\nmine")
    github.comment(7, BOT, "<!-- quorate:plan:v1 eu-1 -->\nanother cluster's")
    comments(github, tmp_path, {"comment.md": PLAN.encode()})
    assert [comment["body"] for comment in github.comments[7]] == [
        f"{MARKER}\nmine",
        "<!-- quorate:plan:v1 eu-1 -->\nanother cluster's",
        PLAN,
    ]


@pytest.mark.parametrize(
    ("left", "passes"),
    [
        ({"comment.md": b"no marker"}, False),
        ({"comment.md": f"{MARKER}\n".encode() + b"x" * 60_000}, False),
        ({"comment.md": MARKER.encode() + b"\n" + b"\0" * 50_000_000}, False),
        ({"comment.md": b"<!-- quorate:plan:v1 $(touch pwned) -->\n"}, False),
        ({"../../pwned": b"x", "comment.md": b""}, False),
        ({"comment.md": MARKER.encode() + b"\n", "filler": Random(1).randbytes(200_000)}, True),
    ],
    ids=["no marker", "too long", "a bomb", "not a cluster's name", "a path that leads out", "a large archive"],
)
def test_what_is_no_comment_of_quorate_is_not_posted(
    github: GitHub, tmp_path: Path, left: dict[str, bytes], passes: bool
) -> None:
    assert comments(github, tmp_path, left).passed is passes
    assert github.wrote == []
    assert list(tmp_path.rglob("pwned")) == []


def test_the_host_says_which_pull_request_it_is(github: GitHub, tmp_path: Path) -> None:
    github.heads[8] = "c" * 40
    left = {"comment.md": PLAN.encode(), "number": b"8"}
    assert comments(github, tmp_path, left, number=None).passed  # A fork's.
    assert comments(github, tmp_path, left, number=8).passed  # It has newer commits.
    assert comments(github, tmp_path, left, number=9).passed  # It is closed.
    assert github.wrote == []


def test_a_forks_run_begins_nothing(github: GitHub, tmp_path: Path) -> None:
    event = github.event(1, 7, SHA)
    event["workflow_run"]["head_repository"]["full_name"] = "mallory/policy"
    job = workflow(COMMENT)["jobs"]["comment"]
    assert Runner(github, "", tmp_path).runs(job, Trigger("workflow_run", event, SHA), tmp_path / "run") is None
