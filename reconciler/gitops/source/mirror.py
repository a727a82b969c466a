"""The bare mirror of the policy repository. It also remembers, as a ref, which revision was last applied."""

from __future__ import annotations

import fcntl
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from reconciler.gitops.source.errors import BranchMissingError, FetchFailedError, GitSourceError, UnknownRevisionError
from reconciler.gitops.source.hardened_git import git_in, safe_url, said, without_password
from reconciler.gitops.source.tree import Revision, commit_of, files_of

APPLIED = "refs/quorate/applied"
FETCHED = "refs/quorate/fetched"
_INCOMING = "refs/quorate/incoming"
"""Where a fetch writes. Git ends with 0 although it has refused to write, as from a shallow repository."""

# A fetch that makes no progress must not keep the loop from its other work for ever.
FETCH_TIMEOUT_S = 120

PATHS_MAX = 500
"""Files that are named to Git at once."""

VERIFY_TIMEOUT_S = 60

_NO_SUCH_REF = 2
"""What `git ls-remote --exit-code` ends with where there is none."""

_BRANCH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+#@-]*")


class Step(NamedTuple):
    """A commit on the way, and how many parents it has."""

    commit: str
    parents: int


class GitMirror:
    """A bare repository of its own in `folder`, filled from `url`. Use by several processes is serialised."""

    def __init__(self, folder: Path, url: str) -> None:
        """Raises UnsafeUrlError. Nothing is fetched or written yet."""
        self.folder = folder
        self.url = safe_url(url)
        self._start_over = f"Make room on the disk; or delete {folder}, and it is fetched anew."

    def fetch(self, branch: str) -> str:
        """The newest commit of a branch, now here.

        Raises FetchFailedError, BranchMissingError, UnknownRevisionError, GitSourceError.
        """
        with self._opened() as git:
            return self._fetched_commit(git, branch)

    def read(self, commit: str) -> Revision:
        """What a commit that is here says. Raises UnknownRevisionError, GitSourceError."""
        with self._opened() as git:
            full = commit_of(git, commit)
            return Revision(full, files_of(git, full))

    def applied(self) -> str | None:
        """The commit last marked as applied."""
        return self._commit_at(APPLIED)

    def fetched(self) -> str | None:
        """The commit last fetched."""
        return self._commit_at(FETCHED)

    def mark_applied(self, commit: str) -> None:
        """Remember a commit, also over a restart, as the one with the policy in force."""
        with self._opened() as git:
            git.update_ref(APPLIED, commit)

    def descends(self, commit: str, ancestor: str) -> bool:
        """Whether a commit is the ancestor itself or was made from it; if not, history was rewritten."""
        with self._opened() as git:
            status, _, _ = git.merge_base(
                "--is-ancestor", ancestor, commit, with_extended_output=True, with_exceptions=False
            )
        if status not in (0, 1):
            raise GitSourceError(f"{commit[:12]} and {ancestor[:12]} can't be compared", self._start_over)
        return bool(status == 0)

    def line(self, commit: str, since: str | None) -> tuple[Step, ...]:
        """A commit and its first parents, back to what `since` has (None: the commit alone), the oldest first.

        The commit itself is always there, also where it lies behind `since`. Raises GitSourceError.
        """
        behind = () if since is None else (f"^{since}",)
        with self._opened() as git:
            listed = git.rev_list("--first-parent", "--parents", "--reverse", commit, *behind) if behind else ""
            own = git.rev_list("--parents", "--max-count=1", commit)
        lines = [each.split() for each in listed.splitlines()] or [own.split()]
        return tuple(Step(ids[0], len(ids) - 1) for ids in lines)

    def verify(self, commit: str, trusting: Mapping[str, str]) -> tuple[int, str]:
        """What `git verify-commit` ends with in an environment, and what the program said that judged. Raises GitSourceError."""
        options = {"with_extended_output": True, "with_exceptions": False, "kill_after_timeout": VERIFY_TIMEOUT_S}
        with self._opened() as git, git.custom_environment(**trusting):
            status, _, said_of_it = git.verify_commit("--raw", commit, **options)
        return int(status), str(said_of_it)

    def changed(self, step: Step) -> tuple[str, ...]:
        """The files that differ from its first parent; of a commit without parents, all. Raises GitSourceError."""
        against = (f"{step.commit}^1", step.commit) if step.parents else ("--root", step.commit)
        with self._opened() as git:
            named = git.diff_tree("-r", "-z", "--name-only", "--no-renames", "--no-commit-id", *against)
        return tuple(path for path in named.split("\0") if path)

    def people(self, step: Step, paths: Sequence[str]) -> tuple[str, frozenset[str]]:
        """Its committer, and the authors of what it brings that touches these files: e-mail addresses in lower case.

        Raises GitSourceError.
        """
        brought = (step.commit, f"^{step.commit}^1") if step.parents else (step.commit,)
        # A command line has an end; of so many files all commits count.
        named = paths if len(paths) <= PATHS_MAX else ()
        with self._opened() as git:
            committer = git.log("-1", "--format=%ce", step.commit)
            authors = git.log("--full-history", "--format=%ae", *brought, "--", *named)
        return committer.strip().lower(), frozenset(line.lower() for line in authors.splitlines() if line)

    def _fetched_commit(self, git: Any, branch: str) -> str:
        from git import GitCommandError

        if not _BRANCH.fullmatch(branch) or ".." in branch:
            raise UnknownRevisionError(
                f"{branch!r} is not the name of a branch", "Name the branch that holds the policy."
            )
        options = ("--quiet", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head", "--refmap=")
        refspec = f"+refs/heads/{branch}:{_INCOMING}"
        git.update_ref("-d", _INCOMING)
        try:
            git.fetch(*options, "--", self.url, refspec, kill_after_timeout=FETCH_TIMEOUT_S)
        except GitCommandError as error:
            self._require_branch(git, branch)
            fix = "It is tried again. Check the URL, the branch, the network and the credentials."
            raise FetchFailedError(
                f"can't fetch {branch} from {without_password(self.url)}: {said(error)}", fix
            ) from error
        return self._arrived(git, branch)

    def _arrived(self, git: Any, branch: str) -> str:
        try:
            commit = commit_of(git, _INCOMING)
        except UnknownRevisionError:
            fix = "Follow a repository that has its whole history: this one may be a shallow clone."
            raise GitSourceError(f"{without_password(self.url)} gives away no {branch}", fix) from None
        git.update_ref(FETCHED, commit)
        return commit

    def _require_branch(self, git: Any, branch: str) -> None:
        """Raises BranchMissingError where the repository answers, and says that there is none."""
        asked = ("--exit-code", "--quiet", "--", self.url, f"refs/heads/{branch}")
        options = {"with_extended_output": True, "with_exceptions": False, "kill_after_timeout": FETCH_TIMEOUT_S}
        status, _, _ = git.ls_remote(*asked, **options)
        if status == _NO_SUCH_REF:
            fix = "Restore it, or start with the --branch that holds the policy. It is looked for again."
            raise BranchMissingError(f"{without_password(self.url)} has no branch {branch}", fix)

    def _commit_at(self, ref: str) -> str | None:
        """What a ref says, whether or not the commit itself can be read: a damaged mirror has not forgotten it."""
        with self._opened() as git:
            return str(git.for_each_ref("--format=%(objectname)", ref)) or None

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        """Git in the mirror, which is made if it is not there, while no other process uses it. Raises GitSourceError."""
        from git import GitCommandError

        try:
            with self._locked(), git_in(self.folder, self.folder) as git:
                if not (self.folder / "HEAD").exists():
                    git.init("--quiet", "--bare", "--template=")
                yield git
        except GitCommandError as error:
            raise GitSourceError(f"the mirror {self.folder} can't be used: {said(error)}", self._start_over) from error
        except OSError as error:
            raise GitSourceError(
                f"the mirror {self.folder} can't be used: {error.strerror}", self._start_over
            ) from error

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "quorate.flock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # A lock file of Git that is here now was left by a process that was killed.
            for left in (*self.folder.glob("*.lock"), *(self.folder / "refs").rglob("*.lock")):
                left.unlink()
            yield
