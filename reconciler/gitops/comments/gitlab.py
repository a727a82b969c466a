"""Merge requests of a project on GitLab, through its REST API of version 4 (docs.gitlab.com, API resources)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from urllib.parse import quote

import msgspec

from reconciler.gitops.comments.host_api import LISTED_MAX, PAGE_SIZE, HostApi, Params
from reconciler.gitops.comments.hosts import PULL_REQUESTS_MAX, OwnComment, PlanArtifact, PullRequest
from reconciler.gitops.comments.plan_comment import BYTES_MAX, PAGE_FILE, PLAN_FILE

_JOBS_PAGE_SIZE = 100
_PIPELINES_MAX = 20
"""The newest of a merge request that are looked at."""

_ENDED = frozenset({"success", "failed", "canceled"})


class _MergeRequest(msgspec.Struct, frozen=True):
    iid: int
    sha: str | None
    state: str
    source_project_id: int | None
    target_project_id: int


class _Pipeline(msgspec.Struct, frozen=True):
    id: int
    sha: str
    ref: str


class _Commit(msgspec.Struct, frozen=True):
    parent_ids: list[str] = []


class _Job(msgspec.Struct, frozen=True):
    id: int
    name: str
    status: str
    web_url: str = ""


class _User(msgspec.Struct, frozen=True):
    id: int


class _Note(msgspec.Struct, frozen=True):
    id: int
    body: str
    author: _User
    system: bool = False


class GitLabProject:
    """Implements PullRequestHost. `project` is a path such as `lab/policy`, or a number."""

    def __init__(self, api: HostApi, project: str) -> None:
        self._api = api
        self._at = f"/projects/{quote(project, safe='')}"
        self._me = api.get("/user", _User).id

    def open_pull_requests(self) -> list[PullRequest]:
        """Merge requests that are open; a fork's has another source project, whose runs are not this project's."""
        params: Params = {"state": "opened", "order_by": "updated_at", "sort": "desc", "per_page": PAGE_SIZE}
        found = self._api.listed(f"{self._at}/merge_requests", _MergeRequest, params)
        own = (
            PullRequest(each.iid, each.sha)
            for each in islice(found, LISTED_MAX)
            if each.sha and each.source_project_id == each.target_project_id
        )
        return list(islice(own, PULL_REQUESTS_MAX))

    def is_open_at(self, number: int, head: str) -> bool:
        """As the merge request stands now."""
        found = self._api.get(f"{self._at}/merge_requests/{number}", _MergeRequest)
        return found.state == "opened" and found.sha == head

    def plan(self, pull_request: PullRequest, name: str) -> PlanArtifact | None:
        """Of the job of that name in the newest pipeline on the head that has one, once it has ended."""
        for pipeline in self._pipelines(pull_request):
            jobs = self._api.listed(f"{self._at}/pipelines/{pipeline.id}/jobs", _Job, {"per_page": _JOBS_PAGE_SIZE})
            job = max((job for job in jobs if job.name == name), key=lambda job: job.id, default=None)
            if job is not None:
                return self._left_by(job) if job.status in _ENDED else None
        return None

    def _left_by(self, job: _Job) -> PlanArtifact | None:
        files = f"{self._at}/jobs/{job.id}/artifacts"
        written = self._api.file(f"{files}/{PLAN_FILE}", BYTES_MAX)
        if written is None:
            return None
        has_page = job.web_url and self._api.file(f"{files}/{PAGE_FILE}", 0) is not None
        return PlanArtifact(written, f"{job.web_url}/artifacts/file/{PAGE_FILE}" if has_page else "")

    def _pipelines(self, pull_request: PullRequest) -> Iterator[_Pipeline]:
        """Newest first: those on the head commit, and those on what merging it would give, a commit that has it as a parent."""
        at = f"{self._at}/merge_requests/{pull_request.number}/pipelines"
        listed = islice(self._api.listed(at, _Pipeline, {"per_page": PAGE_SIZE}), _PIPELINES_MAX)
        merged = {f"refs/merge-requests/{pull_request.number}/{kind}" for kind in ("merge", "train")}
        for pipeline in sorted(listed, key=lambda pipeline: -pipeline.id):
            is_merged = pipeline.ref in merged and pull_request.head in self._parents(pipeline.sha)
            if pipeline.sha == pull_request.head or is_merged:
                yield pipeline

    def _parents(self, sha: str) -> list[str]:
        return self._api.get(f"{self._at}/repository/commits/{quote(sha, safe='')}", _Commit).parent_ids

    def own_comments(self, number: int) -> Iterator[OwnComment]:
        """Notes, without those that GitLab writes itself."""
        params: Params = {"sort": "asc", "order_by": "created_at", "per_page": PAGE_SIZE}
        for note in self._api.listed(self._notes(number), _Note, params):
            if note.author.id == self._me and not note.system:
                yield OwnComment(note.id, note.body)

    def begin_comment(self, number: int, body: str) -> None:
        """Write a note."""
        self._api.send("POST", self._notes(number), {"body": body})

    def replace_comment(self, number: int, comment: int, body: str) -> None:
        """Change a note."""
        self._api.send("PUT", f"{self._notes(number)}/{comment}", {"body": body})

    def _notes(self, number: int) -> str:
        return f"{self._at}/merge_requests/{number}/notes"
