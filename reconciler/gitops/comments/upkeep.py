"""One comment with the plan on each open pull request, begun or brought up to date; what fails of one keeps no other back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Literal

from reconciler.gitops.comments.host_api import HostError
from reconciler.gitops.comments.hosts import PullRequest, PullRequestHost
from reconciler.gitops.comments.plan_comment import UnusablePlanError, comment_of
from solver.model.document import Document

_FAILURES_MAX: Final = 3
"""In a row, of the host and not of what one pull request holds: then it is left alone until the next time."""

CommentOutcome = Literal["begun", "updated", "unchanged", "no-plan", "not-a-plan", "overtaken", "failed"]


class CommentUpkeep(Document, frozen=True, omit_defaults=False):
    """What was done of one plan of one pull request. `source` is the job or artifact that left it; `detail` says why, or ""."""

    number: int
    head: str
    source: str
    outcome: CommentOutcome
    detail: str = ""


def keep_comments(host: PullRequestHost, sources: Sequence[str], *, write: bool = True) -> Iterator[CommentUpkeep]:
    """Each as it is done. Without `write` it is only said what would be.

    Raises NoArtifactsError, and HostError where nothing can be listed or the host fails again and again.
    """
    failures = 0
    for pull_request in host.open_pull_requests():
        for source in sources:
            try:
                outcome, detail = _kept(host, pull_request, source, write=write)
                failures = 0
            except HostError as error:
                failures += error.is_of_host
                if failures == _FAILURES_MAX:
                    raise
                outcome, detail = "failed", str(error)
            yield CommentUpkeep(pull_request.number, pull_request.head, source, outcome, detail)


def _kept(host: PullRequestHost, pull_request: PullRequest, source: str, *, write: bool) -> tuple[CommentOutcome, str]:
    artifact = host.plan(pull_request, source)
    if artifact is None:
        return "no-plan", ""
    try:
        marker, body = comment_of(artifact.written, artifact.page)
    except UnusablePlanError as error:
        return "not-a-plan", str(error)
    comments = host.own_comments(pull_request.number)
    own = next((comment for comment in comments if comment.body.startswith(marker)), None)
    if own is not None and own.body.strip() == body.strip():
        return "unchanged", ""
    # What was listed may be old by now: a plan of an earlier commit must not replace that of a newer one.
    if not host.is_open_at(pull_request.number, pull_request.head):
        return "overtaken", ""
    if own is None:
        if write:
            host.begin_comment(pull_request.number, body)
        return "begun", ""
    if write:
        host.replace_comment(pull_request.number, own.id, body)
    return "updated", ""
