"""What the mirror has of past revisions, for people to read: their documents as text, and the line of commits before them.

It only reads, and by full ids, so it does not wait for a fetch that is under way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from reconciler.documents.files import is_document
from reconciler.gitops.source.errors import GitSourceError, UnknownRevisionError
from reconciler.gitops.source.hardened_git import git_in, said
from reconciler.gitops.source.tree import commit_of, files_of
from solver.model.quantities import Instant

_REVISIONS_KEPT: Final = 4
"""Revisions whose documents stay in memory: that in force, the one before, and those that users look at."""

_LINES_KEPT: Final = 32

_FIELDS: Final = "%x1f".join(("%H", "%ct", "%an", "%cn", "%s"))


class CommitFacts(NamedTuple):
    """A commit as Git tells of it; names and subject are what its author wrote. `at`: when it was committed, by their clock."""

    commit: str
    at: Instant
    author: str
    committer: str
    subject: str


class RevisionArchive:
    """Of one mirror, which is the folder of a bare repository. Any thread may ask."""

    def __init__(self, mirror: Path) -> None:
        self._mirror = mirror
        # What a commit says never changes, so it is read once.
        self.documents: Callable[[str], Mapping[str, str]] = lru_cache(_REVISIONS_KEPT)(self._documents)
        """Text by path, sorted, of a commit by its full id. Raises UnknownRevisionError, GitSourceError."""
        self.line: Callable[[str, int], tuple[CommitFacts, ...]] = lru_cache(_LINES_KEPT)(self._line)
        """So many commits from a full id on along first parents, the newest first. Raises as `documents` does."""

    def _documents(self, commit: str) -> Mapping[str, str]:
        self._require_mirror()
        with git_in(self._mirror, self._mirror) as git:
            contents = files_of(git, commit_of(git, commit)).contents
        return {path: contents[path].decode("utf-8", "replace") for path in sorted(contents) if is_document(path)}

    def _line(self, commit: str, limit: int) -> tuple[CommitFacts, ...]:
        from git import GitCommandError

        self._require_mirror()
        with git_in(self._mirror, self._mirror) as git:
            full = commit_of(git, commit)
            try:
                told = str(git.log("-z", "--first-parent", f"--max-count={limit}", f"--format={_FIELDS}", full, "--"))
            except GitCommandError as error:
                raise GitSourceError(f"the commits before {full[:12]} can't be read: {said(error)}") from error
        return tuple(_facts(record) for record in told.split("\0") if record)

    def _require_mirror(self) -> None:
        if not (self._mirror / "HEAD").exists():
            raise UnknownRevisionError("nothing has been fetched yet", "Try again in a moment.")


def _facts(record: str) -> CommitFacts:
    # Names come before the subject: one with a separator in it garbles what was written by the same hand.
    commit, at, author, committer, subject = record.split("\x1f", 4)
    return CommitFacts(commit, Instant(int(at) * 1_000), author, committer, subject)
