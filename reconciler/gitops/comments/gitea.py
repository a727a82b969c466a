"""Pull requests of a repository on Gitea or Forgejo, through their REST API of version 1; where the two differ, both are read."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from itertools import islice
from urllib.parse import quote

import msgspec

from reconciler.gitops.comments.archive import packed_file
from reconciler.gitops.comments.host_api import LISTED_MAX, PAGE_SIZE, HostApi, HostRefusedError, Params
from reconciler.gitops.comments.hosts import (
    PULL_REQUESTS_MAX,
    NoArtifactsError,
    OwnComment,
    PlanArtifact,
    PullRequest,
)
from reconciler.gitops.comments.plan_comment import BYTES_MAX, PLAN_FILE

PAGE_ARTIFACT = "quorate-page"
"""The artifact with the page of a plan: it is linked to, and not looked at."""

_ARCHIVE_BYTES_MAX = 100_000
_EVENT = "pull_request"
"""How the events begin that runs on pull requests are for (`pull_request_sync` is one of Gitea's)."""

_TOO_OLD = (
    "this host's API has no list of runs and of what they left, or Actions are off in this repository. "
    "Gitea has it since 1.25; of Forgejo, see whether /api/swagger lists actions/runs/{run_id}/artifacts"
)


class _Repository(msgspec.Struct, frozen=True):
    id: int


class _Branch(msgspec.Struct, frozen=True):
    sha: str
    repo: _Repository | None = None


class _PullRequest(msgspec.Struct, frozen=True):
    number: int
    state: str
    head: _Branch
    base: _Branch


class _Run(msgspec.Struct, frozen=True):
    """Gitea says `head_sha`, Forgejo `commit_sha`."""

    id: int
    event: str = ""
    html_url: str = ""
    head_sha: str = ""
    commit_sha: str = ""


class _Runs(msgspec.Struct, frozen=True):
    workflow_runs: list[_Run] | None = None


class _Artifact(msgspec.Struct, frozen=True):
    id: int
    name: str
    size_in_bytes: int = 0
    expired: bool = False


class _Artifacts(msgspec.Struct, frozen=True):
    artifacts: list[_Artifact] | None = None


class _User(msgspec.Struct, frozen=True):
    id: int


class _Comment(msgspec.Struct, frozen=True):
    id: int
    body: str
    user: _User | None = None


class GiteaRepository:
    """Implements PullRequestHost. `repository` is `OWNER/NAME`."""

    def __init__(self, api: HostApi, repository: str) -> None:
        self._api = api
        owner, _, name = repository.partition("/")
        self._at = f"/repos/{quote(owner, safe='')}/{quote(name, safe='')}"
        self._me = api.get("/user", _User).id

    def open_pull_requests(self) -> list[PullRequest]:
        """Those that are open; a fork's branch is of another repository, or of one that is gone."""
        params: Params = {"state": "open", "sort": "recentupdate", "limit": PAGE_SIZE}
        found = self._api.listed(f"{self._at}/pulls", _PullRequest, params)
        own = (
            PullRequest(each.number, each.head.sha)
            for each in islice(found, LISTED_MAX)
            if each.head.repo and each.head.repo == each.base.repo
        )
        return list(islice(own, PULL_REQUESTS_MAX))

    def is_open_at(self, number: int, head: str) -> bool:
        """As the pull request stands now."""
        found = self._api.get(f"{self._at}/pulls/{number}", _PullRequest)
        return found.state == "open" and found.head.sha == head

    def plan(self, pull_request: PullRequest, name: str) -> PlanArtifact | None:
        """Of the artifact of that name of the newest run on the head that has one."""
        for run in self._runs(pull_request.head):
            left = self._artifacts(run)
            artifact = left.get(name)
            if artifact is not None:
                if artifact.size_in_bytes > _ARCHIVE_BYTES_MAX:
                    return PlanArtifact(b"")
                at = f"{self._at}/actions/artifacts/{artifact.id}/zip"
                archive = self._api.file(at, _ARCHIVE_BYTES_MAX) or b""
                page = f"{run.html_url}/artifacts/{PAGE_ARTIFACT}" if run.html_url and PAGE_ARTIFACT in left else ""
                return PlanArtifact(packed_file(archive, PLAN_FILE, BYTES_MAX), page)
        return None

    def _runs(self, head: str) -> list[_Run]:
        """Of pull requests at this commit, newest first."""
        try:
            listed = self._api.get(
                f"{self._at}/actions/runs", _Runs, {"head_sha": head, "page": 1, "limit": PAGE_SIZE}
            ).workflow_runs
        except HostRefusedError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                raise NoArtifactsError(_TOO_OLD) from error
            raise
        found = [run for run in listed or () if head in (run.head_sha, run.commit_sha) and run.event.startswith(_EVENT)]
        return sorted(found, key=lambda run: -run.id)

    def _artifacts(self, run: _Run) -> dict[str, _Artifact]:
        """By name, without those that have expired. Gitea answers an object with a list in it, Forgejo the list."""
        try:
            at = f"{self._at}/actions/runs/{run.id}/artifacts"
            found = self._api.get(at, _Artifacts | list[_Artifact], {"limit": PAGE_SIZE})  # type: ignore[arg-type]
        except HostRefusedError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                raise NoArtifactsError(_TOO_OLD) from error
            raise
        listed = found if isinstance(found, list) else found.artifacts or ()
        return {artifact.name: artifact for artifact in listed if not artifact.expired}

    def own_comments(self, number: int) -> Iterator[OwnComment]:
        """Comments of the conversation."""
        for comment in self._api.listed(self._comments(number), _Comment):
            if comment.user and comment.user.id == self._me:
                yield OwnComment(comment.id, comment.body)

    def begin_comment(self, number: int, body: str) -> None:
        """Write a comment."""
        self._api.send("POST", self._comments(number), {"body": body})

    def replace_comment(self, number: int, comment: int, body: str) -> None:  # noqa: ARG002  (comments are numbered through)
        """Change a comment."""
        self._api.send("PATCH", f"{self._at}/issues/comments/{comment}", {"body": body})

    def _comments(self, number: int) -> str:
        return f"{self._at}/issues/{number}/comments"
