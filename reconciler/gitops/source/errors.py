"""What can go wrong with a Git repository, sorted by what must be done."""

from __future__ import annotations


class GitSourceError(Exception):
    """The root of them all. `fix` says what to do."""

    def __init__(self, problem: str, fix: str = "") -> None:
        super().__init__(problem)
        self.fix = fix


class FetchFailedError(GitSourceError):
    """The repository could not be read now. Nothing needs to be done yet: it is tried again."""


class BranchMissingError(GitSourceError):
    """The repository answers and has no branch of that name. A person must restore it, or name another."""


class UnsafeUrlError(GitSourceError):
    """With this URL Git would do more than fetch over https or ssh or from a path. A person must correct it."""


class UnknownRevisionError(GitSourceError):
    """The repository has no such revision. A person must name another."""


class NotReadyToPlanError(GitSourceError):
    """What a change would do can't be said yet. Nothing needs to be done: it is tried again."""
