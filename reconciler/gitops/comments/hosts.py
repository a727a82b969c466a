"""What a repository host is asked for: open pull requests, the plans that their runs left, and comments of one's own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

PULL_REQUESTS_MAX = 200
"""Looked at in one go, the ones that changed last first."""


class PullRequest(NamedTuple):
    """An open pull request from within the repository, as it was listed. `head` is its newest commit."""

    number: int
    head: str


class PlanArtifact(NamedTuple):
    """What a run on a pull request's head left under one name: the first bytes of `plan.md`; where its page is, or ""."""

    written: bytes
    page: str = ""


class OwnComment(NamedTuple):
    """A comment that the user of the token wrote."""

    id: int
    body: str


class NoArtifactsError(Exception):
    """The API of this host does not hand out what runs left. Says since when it does."""


class PullRequestHost(Protocol):
    """A repository on a host. Every method raises HostError."""

    def open_pull_requests(self) -> list[PullRequest]:
        """Those whose branch is of this repository, no fork's; at most PULL_REQUESTS_MAX."""

    def is_open_at(self, number: int, head: str) -> bool:
        """Whether a pull request is still open, and still at this commit."""

    def plan(self, pull_request: PullRequest, name: str) -> PlanArtifact | None:
        """The newest plan of the head commit; None where no run on it has left one yet. Raises NoArtifactsError too."""

    def own_comments(self, number: int) -> Iterable[OwnComment]:
        """The comments that the token's user wrote, oldest first."""

    def begin_comment(self, number: int, body: str) -> None:
        """Write a new one."""

    def replace_comment(self, number: int, comment: int, body: str) -> None:
        """Let a comment say something else."""
