"""The policy files of one commit, as blobs from the object database: no link is followed, no filter runs."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from subprocess import Popen
from typing import IO, Any

from reconciler.documents.files import (
    FILES_MAX,
    FOLDERS,
    Files,
    content_problem,
    is_read,
    link_problem,
    name_problem,
    size_problem,
    too_many_files,
)
from reconciler.gitops.source.errors import GitSourceError, UnknownRevisionError
from reconciler.gitops.source.hardened_git import git_in
from reconciler.model.problem import START, Problem, did_you_mean, problem_at

BYTES_MAX = 256 * 1024 * 1024
"""Of all files together."""

_ENTRY = re.compile(rb"(\d{6}) (\w+) ([0-9a-f]+) +(\d+|-)\t(.+)", re.DOTALL)
_FILE_MODES = (b"100644", b"100755")
_BLOCK_BYTES = 65_536

# What CI systems make unless told otherwise.
_UNSHALLOW = " This is a shallow clone, without the older commits: `git fetch --unshallow` brings them."
_WHOLE_CLONE = "This is a partial clone, and nothing is fetched for it: make one without --filter."


@dataclass(frozen=True)
class Revision:
    """A commit, by its full id, and the files of it that may hold documents."""

    commit: str
    files: Files


def read_revision(repository: Path, revision: str) -> Revision:
    """What a branch, tag or commit of a local repository says. Raises UnknownRevisionError, GitSourceError."""
    with git_in(repository, _git_dir(repository)) as git:
        commit = commit_of(git, revision)
        return Revision(commit, files_of(git, commit))


def branched_at(repository: Path, base: str, head: str) -> str | None:
    """The commit at which `head` left `base`, where `base` has gone on since; None: it has not, it lies ahead on the same line, or
    the two have no commit in common. Raises UnknownRevisionError, GitSourceError.
    """
    with git_in(repository, _git_dir(repository)) as git:
        tips = commit_of(git, base), commit_of(git, head)
        status, found, _ = git.merge_base(*tips, with_extended_output=True, with_exceptions=False)
    return found if status == 0 and found and found not in tips else None


def _git_dir(repository: Path) -> Path:
    """Found by GitPython and not by Git, which would believe the GIT_DIR that it sets for hooks."""
    from git import Repo
    from git.exc import InvalidGitRepositoryError, NoSuchPathError

    try:
        with Repo(repository, search_parent_directories=True, expand_vars=False) as found:
            return Path(found.git_dir)
    except (InvalidGitRepositoryError, NoSuchPathError) as error:
        raise GitSourceError(
            f"{repository} is no Git repository", "Run it in one, or name its folder with --repo."
        ) from error


def commit_of(git: Any, revision: str) -> str:
    """The full id of a revision; raises UnknownRevisionError."""
    from git import GitCommandError

    unknown = f"there is no revision {revision!r}"
    if revision.startswith("-") or not revision.isprintable():
        raise UnknownRevisionError(unknown, "Name a branch, a tag or a commit.")
    try:
        return str(git.rev_parse("--verify", "--quiet", f"{revision}^{{commit}}"))
    except GitCommandError:
        shallow = str(git.rev_parse("--is-shallow-repository")) == "true"
        raise UnknownRevisionError(unknown, _nearest(git, revision) + _UNSHALLOW * shallow) from None


def _nearest(git: Any, revision: str) -> str:
    """What was probably meant: in a clone of one branch, as CI has it, often that of the remote."""
    listed = str(
        git.for_each_ref("--count=1000", "--format=%(refname:short)", "refs/heads", "refs/tags", "refs/remotes")
    )
    names = listed.splitlines()
    elsewhere = [name for name in names if name.partition("/")[2] == revision]
    return did_you_mean(elsewhere[0] if elsewhere else revision, names) or "Name a branch, a tag or a commit."


def files_of(git: Any, commit: str) -> Files:
    """The files of a commit (a full id) in the folders that are read; raises GitSourceError where one is missing."""
    contents: dict[str, bytes] = {}
    refused: list[Problem] = []
    left = BYTES_MAX
    with closing(_entries(git, commit)) as entries:
        listed = list(islice(entries, FILES_MAX + 1))
    if len(listed) > FILES_MAX:
        return Files({}, (too_many_files(),))
    for path, mode, object_id, size in listed:
        if size > left:
            refused.append(_too_many_bytes(path))
            break
        problem = name_problem(path) or _mode_problem(path, mode) or size_problem(path, size)
        content = b"" if problem or not is_read(path) else _content(git, object_id)
        left -= len(content)
        problem = problem or content_problem(path, content)
        if problem:
            refused.append(problem)
        else:
            contents[path] = content
    return Files(contents, tuple(refused))


def _entries(git: Any, commit: str) -> Generator[tuple[str, bytes, str, int], None, None]:
    """Path, mode, object id and size of everything that is not a folder, as Git finds it, until no more is asked for.

    A few folders that hold each other many times are thousands of millions of files, so the list is never whole anywhere.
    """
    listing = git.ls_tree("-r", "-z", "-l", "--full-tree", commit, "--", *FOLDERS, as_process=True)
    with listing.proc, _ended(listing.proc):
        for line in _until_zero(listing.stdout):
            match = _ENTRY.fullmatch(line)
            if match:
                # What is not UTF-8 becomes a character that `name_problem` refuses.
                path = match[5].decode("utf-8", "surrogateescape")
                yield path, match[1], match[3].decode("ascii"), int(match[4]) if match[4] != b"-" else 0
        if listing.proc.wait() != 0:
            said_so = listing.stderr.read().decode("utf-8", "replace").strip()
            fix = _WHOLE_CLONE if "promisor" in said_so else "Fetch the repository again."
            raise GitSourceError(f"the files of {commit[:12]} can't be listed: {said_so.splitlines()[-1]}", fix)


@contextmanager
def _ended(process: Popen[bytes]) -> Iterator[None]:
    """A caller that asks for no more lets it end, whatever it still had to say."""
    try:
        yield
    finally:
        process.kill()


def _until_zero(stream: IO[bytes]) -> Iterator[bytes]:
    """What stands before each zero byte; no single name may be longer than a block."""
    rest = b""
    while block := stream.read(_BLOCK_BYTES):
        *lines, rest = (rest + block).split(b"\0")
        yield from lines
        if len(rest) > _BLOCK_BYTES:
            raise GitSourceError(
                f"a name is longer than {_BLOCK_BYTES} bytes", "Shorten it, and the folders around it."
            )


def _content(git: Any, object_id: str) -> bytes:
    try:
        content: bytes = git.get_object_data(object_id)[3]
    except ValueError as error:
        raise GitSourceError(
            f"the object {object_id[:12]} is missing or damaged", "Fetch the repository again."
        ) from error
    return content


def _mode_problem(path: str, mode: bytes) -> Problem | None:
    if mode in _FILE_MODES:
        return None
    if mode == b"120000":
        return link_problem(path)
    if mode == b"160000":
        fix = "Commit the files themselves: nothing is fetched from other repositories."
        return problem_at(path, START, "submodule", "this is a submodule, and submodules are not read", fix)
    return problem_at(
        path, START, "not-a-file", f"this is not a regular file (mode {mode.decode('ascii')})", "Delete it."
    )


def _too_many_bytes(path: str) -> Problem:
    """What comes after this file is not read, so it is no problem of this file alone."""
    message = f"up to {path} the files have more than {BYTES_MAX} bytes"
    return problem_at(".", START, "too-large", message, "Delete what is not policy.")
