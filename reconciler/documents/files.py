"""The files that may hold documents, wherever they come from, and those that are refused unread."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from reconciler.documents.text import BYTES_MAX
from reconciler.model.problem import START, Problem, problem_at

FOLDERS = ("cluster-state", "clusters", "policies")
"""Nothing outside these is ever read."""

SNAPSHOT_BYTES_MAX = 64 * 1024 * 1024
FILES_MAX = 20_000
_LFS = b"version https://git-lfs.github.com/spec/"


@dataclass(frozen=True)
class Files:
    """Contents by path from the repository's root, with `/`; `refused` says what was found and not read."""

    contents: Mapping[str, bytes]
    refused: tuple[Problem, ...] = field(default=())


def is_document(path: str) -> bool:
    """The name is that of a file in which documents are looked for."""
    return path.endswith((".yaml", ".yml"))


def is_snapshot(path: str) -> bool:
    """The name is that of a file that may be an example snapshot."""
    return path.startswith("cluster-state/") and path.endswith((".json", ".json.gz"))


def is_read(path: str) -> bool:
    """The file's content matters; anything else is only looked at by name."""
    return is_document(path) or is_snapshot(path)


def size_problem(path: str, size: int) -> Problem | None:
    """A file too large to be read, judged before it is."""
    most = SNAPSHOT_BYTES_MAX if is_snapshot(path) else BYTES_MAX
    if size <= most:
        return None
    return problem_at(path, START, "too-large", f"the file has {size} bytes, at most {most} are read", "Split it.")


def content_problem(path: str, content: bytes) -> Problem | None:
    """A file that stands for another one which is not here."""
    if not content.startswith(_LFS):
        return None
    message = "this is a Git LFS pointer, not the file itself"
    return problem_at(
        path, START, "lfs-pointer", message, "Store the file in Git: `git lfs untrack` it and commit it again."
    )


def link_problem(path: str) -> Problem:
    """A symbolic link: it could lead anywhere, so none is followed."""
    return problem_at(
        path,
        START,
        "symlink",
        "this is a symbolic link, and links are not followed",
        "Replace it with the file it points to.",
    )


def name_problem(path: str) -> Problem | None:
    """A name that can't be shown or cited."""
    if path.isprintable():
        return None
    return problem_at(
        path.encode("unicode_escape").decode("ascii"),
        START,
        "file-name",
        "the name has unprintable characters",
        "Rename it.",
    )


def too_many_files() -> Problem:
    """More files than any policy needs."""
    return problem_at(
        ".", START, "too-many-files", f"there are more than {FILES_MAX} files", "Delete what is not policy."
    )


def read_folder(root: Path) -> Files:
    """The files of a work tree. Links are refused, not followed. Raises OSError where a file can't be read."""
    contents: dict[str, bytes] = {}
    refused: list[Problem] = []
    for folder in FOLDERS:
        for count, entry in enumerate(_walk(root / folder)):
            if count >= FILES_MAX:
                refused.append(too_many_files())
                break
            path = entry.relative_to(root).as_posix()
            problem = name_problem(path) or _entry_problem(path, entry)
            content = b"" if problem or not is_read(path) else entry.read_bytes()
            problem = problem or content_problem(path, content)
            if problem:
                refused.append(problem)
            else:
                contents[path] = content
    return Files(contents, tuple(refused))


def _walk(folder: Path) -> Iterator[Path]:
    """Every file below a folder, and every link, in a stable order."""
    if folder.is_symlink() or not folder.is_dir():
        if folder.is_symlink() or folder.exists():
            yield folder
        return
    for entry in sorted(folder.iterdir()):
        yield from _walk(entry) if entry.is_dir() or entry.is_symlink() else [entry]


def _entry_problem(path: str, entry: Path) -> Problem | None:
    if entry.is_symlink():
        return link_problem(path)
    if not entry.is_file():
        return problem_at(path, START, "not-a-file", "this is not a regular file", "Delete it.")
    return size_problem(path, entry.stat().st_size)
