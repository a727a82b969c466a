"""`quorate comment` keeps one comment on each pull request, and trusts nothing that the pull request's author could have made up.

Every test that takes a `host` is for GitLab, Gitea and Forgejo alike.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from zipfile import ZIP_BZIP2, ZIP_DEFLATED, ZipFile

import pytest

from reconciler.analysis.reports.markdown import marker
from reconciler.gitops.comments import gitea as gitea_host
from reconciler.gitops.comments import gitlab as gitlab_host
from reconciler.gitops.comments import host_api
from tests.hosting import gitea_api, gitlab_api
from tests.hosting.gitea_api import Gitea, ServedGitea, Storage
from tests.hosting.gitlab_api import GitLab, ServedGitLab
from tests.hosting.host_server import HostServer, Reply
from tests.reconciler.cli.conftest import Quorate, Ran, quorate

__all__ = ["quorate"]

MARKER = "<!-- quorate:plan:v1 -->"
PLAN = f'{MARKER}\n### 1 job starts\n\n`$(touch pwned)` "quoted" ü\n'
HEAD, NEWER = "a" * 40, "c" * 40


class Site:
    """A host with a pull request, number 7, and the command that looks after it."""

    def __init__(self, kind: str, host: GitLab | Gitea, server: HostServer, command: Quorate) -> None:
        self.kind = kind
        self.host = host
        self.server = server
        self._command = command
        self.bot = gitlab_api.BOT if isinstance(host, GitLab) else gitea_api.BOT
        host.opens(7, HEAD)

    def comments(self, *more: str, url: str = "") -> Ran:
        api = "gitlab" if isinstance(self.host, GitLab) else "gitea"
        return self._command(
            "comment", "--host", api, "--url", url or self.server.url, "--repository", "lab/policy", *more
        )

    def outcomes(self, *more: str) -> dict[int, str]:
        said = json.loads(self.comments("-o", "json", *more).out)
        assert said["apiVersion"] == "quorate.dev/v1"
        return {each["number"]: each["outcome"] for each in said["items"]}


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("QUORATE_HOST_TOKEN", "QUORATE_HOST_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def rests(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long it waited between tries, in seconds: nothing does wait."""
    waited: list[float] = []
    monkeypatch.setattr("reconciler.gitops.comments.host_api.time.sleep", waited.append)
    return waited


@pytest.fixture
def gitlab(quorate: Quorate, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("QUORATE_HOST_TOKEN", gitlab_api.TOKEN)
    host = GitLab()
    with ServedGitLab(host) as server:
        yield Site("gitlab", host, server, quorate)


def _gitea(kind: str, quorate: Quorate, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("QUORATE_HOST_TOKEN", gitea_api.TOKEN)
    host = Gitea(forgejo=kind == "forgejo")
    with ServedGitea(host) as server, Storage(host):
        yield Site(kind, host, server, quorate)


@pytest.fixture
def gitea(quorate: Quorate, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    yield from _gitea("gitea", quorate, monkeypatch)


@pytest.fixture(params=["gitlab", "gitea", "forgejo"])
def host(request: pytest.FixtureRequest, quorate: Quorate, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    if request.param == "gitlab":
        yield request.getfixturevalue("gitlab")
    else:
        yield from _gitea(request.param, quorate, monkeypatch)


def test_one_comment_is_begun_then_brought_up_to_date_then_left_as_it_is(host: Site, tmp_path: Path) -> None:
    for _ in range(45):  # Where the host hands out pages, the bot's is on the third.
        host.host.says(7, "ada", "I like it")
    host.host.leaves(7, HEAD, PLAN.encode())
    ran = host.comments()
    assert (ran.exit_code, ran.err) == (0, "")
    assert "begun" in ran.out
    host.host.moves(7, NEWER)
    assert host.outcomes() == {7: "no-plan"}
    host.host.leaves(7, NEWER, f"{MARKER}\nnewer".encode())
    assert host.outcomes() == {7: "updated"}
    assert host.outcomes() == {7: "unchanged"}
    assert [body.strip() for body in host.host.bodies(7)] == [f"{MARKER}\nnewer"]
    assert host.host.wrote == ["new comment on 7", "comment 7045"]


def test_what_was_left_is_said_as_it_is(host: Site) -> None:
    host.host.leaves(7, HEAD, PLAN.encode())
    host.comments()
    (body,) = host.host.bodies(7)
    assert body.strip() == PLAN.strip()


def test_what_would_be_done_is_said_and_nothing_written(host: Site) -> None:
    host.host.leaves(7, HEAD, PLAN.encode())
    ran = host.comments("--dry-run")
    assert "nothing is written" in ran.out
    assert "begun" in ran.out
    assert host.host.wrote == []


def test_only_the_bots_own_comment_with_the_same_marker_is_touched(host: Site) -> None:
    host.host.says(7, "mallory", f"{MARKER}\nmine")
    host.host.says(7, host.bot, "<!-- quorate:plan:v1 eu-1 -->\nanother cluster's")
    host.host.says(7, host.bot, f"Somebody said {MARKER}")
    host.host.leaves(7, HEAD, PLAN.encode())
    host.comments()
    assert host.host.wrote == ["new comment on 7"]


def test_each_cluster_has_a_comment(host: Site) -> None:
    for name in ("eu", "us"):
        host.host.leaves(7, HEAD, f"{marker(name)}\nof {name}".encode(), name=name)
    host.comments("--from", "eu", "--from", "us")
    host.comments("--from", "eu", "--from", "us")
    assert [body.strip() for body in host.host.bodies(7)] == [f"{marker(name)}\nof {name}" for name in ("eu", "us")]


@pytest.mark.parametrize(
    "left",
    [
        b"",
        b"no marker",
        b" " + PLAN.encode(),
        f"{MARKER}\n".encode() + b"x" * 60_000,
        f"{MARKER}\n".encode() + b"\0" * 20_000_000,
        b"<!-- quorate:plan:v1 $(touch pwned) -->\n",
        b"<!-- quorate:plan:v1 --> -->\n",
        f"{MARKER}\n".encode() + b"\xff\xfe",
    ],
    ids=["empty", "no marker", "not in front", "too long", "a bomb", "no cluster's name", "more behind it", "no text"],
)
def test_what_is_no_plan_is_not_posted_and_keeps_no_other_back(host: Site, left: bytes) -> None:
    host.host.leaves(7, HEAD, left)
    host.host.opens(8, NEWER)
    host.host.leaves(8, NEWER, PLAN.encode())
    ran = host.comments()
    assert host.host.wrote == ["new comment on 8"]
    assert (ran.exit_code, "pull request 7: " in ran.err) == (0, True), ran.err


def test_a_fork_has_no_comment(host: Site) -> None:
    host.host.opens(8, NEWER, fork=True)
    host.host.leaves(8, NEWER, PLAN.encode())
    assert host.outcomes() == {7: "no-plan"}
    assert not any(f"/{NEWER}" in asked for asked in host.server.asked)


def test_one_that_moves_on_meanwhile_is_left_to_its_newer_run(host: Site) -> None:
    host.host.leaves(7, HEAD, PLAN.encode())
    host.host.on_artifact = lambda: host.host.moves(7, NEWER)
    assert host.outcomes() == {7: "overtaken"}
    host.host.moves(7, HEAD)
    host.host.on_artifact = lambda: host.host.closes(7)
    assert host.outcomes() == {7: "overtaken"}
    assert host.host.wrote == []


def test_the_newest_run_on_the_newest_commit_counts(host: Site) -> None:
    host.host.leaves(7, HEAD, f"{MARKER}\nfirst".encode())
    host.host.leaves(7, HEAD, f"{MARKER}\nagain".encode())
    host.host.leaves(7, NEWER, f"{MARKER}\nof a commit that was taken back".encode())
    host.comments()
    assert [body.strip() for body in host.host.bodies(7)] == [f"{MARKER}\nagain"]


def test_it_links_to_the_page_that_the_host_says_there_is(host: Site) -> None:
    long = f"{MARKER}\n".encode().ljust(60_000, b"x")
    host.host.leaves(7, HEAD, long, page=b"<html>" * 50_000)
    host.comments()
    (body,) = host.host.bodies(7)
    address = "https://gitlab.example.com/lab/policy/-/jobs/1000/artifacts/file/plan.html"
    if host.kind != "gitlab":
        address = "https://gitea.example.com/lab/policy/actions/runs/100/artifacts/quorate-page"
    assert f"[All of it as a page]({address}), " in body
    assert body.startswith(long.decode())


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_host_is_asked_again_after_the_rest_that_it_asks_for(
    host: Site, rests: list[float], status: int
) -> None:
    host.host.leaves(7, HEAD, PLAN.encode())
    host.server.troubles["GET"] = [Reply(status, headers={"Retry-After": "17"}), Reply(status)]
    ran = host.comments()
    assert (ran.exit_code, rests) == (0, [17.0, 5.0])
    assert len(host.host.bodies(7)) == 1


def test_a_host_that_asks_for_a_long_rest_is_left_alone(host: Site, rests: list[float]) -> None:
    host.server.troubles["GET"] = [Reply(429, headers={"Retry-After": "3600"})]
    ran = host.comments()
    assert (ran.exit_code, rests) == (1, [])
    assert "429" in ran.err


def test_a_comment_is_not_begun_twice_where_it_may_have_been_begun(host: Site, rests: list[float]) -> None:
    host.host.leaves(7, HEAD, PLAN.encode())
    host.server.troubles["POST"] = [Reply(502)]
    ran = host.comments()
    assert (ran.exit_code, rests) == (1, [])
    assert [asked for asked in host.server.asked if asked.startswith("POST")] != []
    host.server.troubles["POST"] = [Reply(429)]  # This says that nothing was done.
    assert host.comments().exit_code == 0
    assert (len(host.host.bodies(7)), rests) == (1, [1.0])


def test_a_host_that_fails_again_and_again_is_not_asked_for_every_pull_request(host: Site, rests: list[float]) -> None:
    host.host.leaves(7, HEAD, PLAN.encode())
    for number in range(8, 30):
        host.host.opens(number, HEAD)
        host.host.leaves(number, HEAD, PLAN.encode())
    host.server.troubles["POST"] = [Reply(500)] * 50
    ran = host.comments()
    assert ran.exit_code == 1
    assert len([asked for asked in host.server.asked if asked.startswith("POST")]) == 3
    assert "500" in ran.err


def test_what_a_host_can_not_do_for_one_keeps_no_other_back(host: Site) -> None:
    host.host.opens(8, NEWER)
    for number, head in ((7, HEAD), (8, NEWER)):
        host.host.leaves(number, head, PLAN.encode())
    host.server.troubles["POST"] = [Reply(403)]  # A conversation that is locked.
    ran = host.comments()
    assert (ran.exit_code, host.host.wrote) == (1, ["new comment on 8"])
    assert "pull request 7: " in ran.err


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        (Reply(200, b"[" * 100_000), "not what this API is documented to answer"),
        (Reply(200, b"<html>Sign in</html>"), "not what this API is documented to answer"),
        (Reply(200, b" " * (host_api.ANSWER_BYTES_MAX + 1)), "more than"),
        (Reply(200, b'[{"iid": "7"}]'), "not what this API is documented to answer"),
        (Reply(302, headers={"Location": "https://login.example.com"}), "answered 302"),
    ],
    ids=["deep", "a page to sign in at", "too large", "of another kind", "elsewhere"],
)
def test_an_answer_that_is_none_is_one_clear_error(host: Site, trouble: Reply, said: str) -> None:
    host.server.troubles["GET /api/v1/user"] = host.server.troubles["GET /api/v4/user"] = [trouble]
    ran = host.comments()
    assert (ran.exit_code, said in ran.err, ran.out) == (1, True, ""), ran.err


def test_the_token_is_the_hosts_and_is_never_said(host: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("QUORATE_HOST_TOKEN", "wrong-token")
    ran = host.comments()
    assert (ran.exit_code, "wrong-token" in ran.out + ran.err) == (6, False)
    monkeypatch.delenv("QUORATE_HOST_TOKEN")
    assert (host.comments().exit_code, "no token" in host.comments().err) == (6, True)
    file = tmp_path / "token"
    file.write_text(gitlab_api.TOKEN if host.kind == "gitlab" else gitea_api.TOKEN)
    file.chmod(0o644)
    assert (host.comments("--token-file", str(file)).exit_code) == 6
    file.chmod(0o600)
    assert host.comments("--token-file", str(file)).exit_code == 0
    monkeypatch.setenv("QUORATE_HOST_TOKEN_FILE", str(file))
    assert host.comments().exit_code == 0


def test_a_host_that_does_not_answer_is_said(host: Site, rests: list[float]) -> None:
    ran = host.comments(url="http://127.0.0.1:9")
    assert (ran.exit_code, "127.0.0.1" in ran.err) == (8, True)


@pytest.mark.parametrize("url", ["git.example.com", "ftp://git.example.com", "https://ada:secret@git.example.com"])
def test_an_address_that_can_not_be_is_refused(host: Site, url: str) -> None:
    ran = host.comments(url=url)
    assert (ran.exit_code, "--url" in ran.err) == (64, True)


def test_ci_may_say_where_the_api_is(host: Site) -> None:
    api = "/api/v4" if host.kind == "gitlab" else "/api/v1"
    assert host.comments(url=f"{host.server.url}{api}/").exit_code == 0


def test_no_more_than_so_many_are_looked_at(host: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor are more listed where most are of forks."""
    for module in (gitea_host, gitlab_host):
        monkeypatch.setattr(module, "PULL_REQUESTS_MAX", 25)
        monkeypatch.setattr(module, "LISTED_MAX", 60)
    for number in range(8, 50):
        host.host.opens(number, HEAD, fork=number % 3 > 0)
    assert len(host.outcomes()) == 15
    for number in range(50, 100):
        host.host.opens(number, HEAD)
    assert len(host.outcomes()) == 25
    assert len([asked for asked in host.server.asked if re.search(r"/(pulls|merge_requests)$", asked)]) == 3 + 3


@pytest.mark.parametrize(
    "order", ["/close", "  /merge", "\u2028/approve", "\x0b/close", "\x01/close", "`x`\r/assign @ada", "> a\n\n/close"]
)
def test_a_plan_gives_gitlab_no_orders(gitlab: Site, order: str) -> None:
    """A line of a note that begins with a slash is done in the name of who writes the note."""
    gitlab.host.leaves(7, HEAD, f"{MARKER}\nall well\n{order}\n".encode())
    gitlab.comments()
    assert gitlab.host.executed == []
    gitlab.host.leaves(7, HEAD, f"{MARKER}\nnewer\n{order}\n".encode())
    assert gitlab.outcomes() == {7: "updated"}
    assert gitlab.host.executed == []
    assert "\\/" in gitlab.host.bodies(7)[0]


def test_a_pipeline_of_the_merged_result_counts(gitlab: Site) -> None:
    assert isinstance(gitlab.host, GitLab)
    gitlab.host.leaves(7, "d" * 40, PLAN.encode(), kind="merge")
    assert gitlab.outcomes() == {7: "no-plan"}
    gitlab.host.parents["d" * 40] = ["b" * 40, HEAD]
    assert gitlab.outcomes() == {7: "begun"}


def test_a_job_that_runs_yet_is_waited_for(gitlab: Site) -> None:
    gitlab.host.leaves(7, HEAD, f"{MARKER}\nfirst".encode())
    gitlab.host.leaves(7, HEAD, None, status="running")
    assert gitlab.outcomes() == {7: "no-plan"}


def test_the_token_does_not_follow_to_where_artifacts_lie(gitea: Site) -> None:
    gitea.host.leaves(7, HEAD, PLAN.encode())
    assert gitea.outcomes() == {7: "begun"}


@pytest.mark.parametrize("kind", ["a large archive", "packed in another way", "no archive", "a path", "expired"])
def test_of_an_archive_one_small_file_is_taken(gitea: Site, tmp_path: Path, kind: str) -> None:
    assert isinstance(gitea.host, Gitea)
    file = tmp_path / "made.zip"
    with ZipFile(file, "w", ZIP_BZIP2 if kind == "packed in another way" else ZIP_DEFLATED) as made:
        made.writestr("../../plan.md" if kind == "a path" else "plan.md", PLAN)
        if kind == "a large archive":
            made.writestr("filler", Random(1).randbytes(200_000))
    gitea.host.leaves(7, HEAD, None)
    left = gitea.host.uploads(100, "quorate-comment", b"PK" if kind == "no archive" else file.read_bytes())
    if kind == "expired":
        gitea.host.expired.add(left)
    assert gitea.outcomes() == {7: "no-plan" if kind == "expired" else "not-a-plan"}
    assert gitea.host.wrote == []


def test_a_version_that_hands_out_no_artifacts_is_refused(gitea: Site) -> None:
    gitea.host.old = True
    ran = gitea.comments()
    assert (ran.exit_code, "Gitea has it since 1.25" in ran.err) == (1, True)


def test_the_marker_is_that_of_plans() -> None:
    assert marker() == MARKER
