"""What is released: one commit, and nothing that lies beside it."""

from __future__ import annotations

import subprocess
import tarfile
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from hack.release.notes import CHANGELOG, notes
from hack.release.version import disagreements, version
from hack.supply_chain.problem import ProblemError


class Source(NamedTuple):
    """A commit, unpacked. `epoch_s`: when it was made, as SOURCE_DATE_EPOCH."""

    root: Path
    version: str
    commit: str
    epoch_s: int


def checked(repository: Path, folder: Path) -> Source:
    """HEAD, unpacked into a folder. Raises ProblemError where it may not be released, with what to do first."""
    _refuse_dirty(repository)
    commit, epoch_s = _git(repository, "log", "-1", "--format=%H %ct").split()
    with tarfile.open(fileobj=BytesIO(_run(repository, "archive", "--format=tar", commit))) as archive:
        archive.extractall(folder, filter="tar")
    source = Source(folder, version(folder), commit, int(epoch_s))
    _refuse_version(repository, source)
    return source


def _refuse_dirty(repository: Path) -> None:
    changed = _git(repository, "status", "--porcelain", "--untracked-files=normal").splitlines()
    if changed:
        named = ", ".join(line[3:] for line in changed[:3]) + (f" and {len(changed) - 3} more" if changed[3:] else "")
        raise ProblemError(str(repository), f"not committed: {named}", "Commit it, or put it aside (`git stash -u`).")


def _refuse_version(repository: Path, source: Source) -> None:
    if other := disagreements(source.root):
        fix = f"Run `python -m hack.release.version {source.version}`, and commit."
        raise ProblemError(", ".join(other), f"another version than pyproject.toml, which says {source.version}", fix)
    notes((source.root / CHANGELOG).read_text("utf-8"), source.version)
    tagged = _git(repository, "for-each-ref", "--format=%(*objectname) %(objectname)", f"refs/tags/v{source.version}")
    if tagged and source.commit not in tagged.split():
        fix = "Raise the version: `python -m hack.release.version NEW`, and cut its section of CHANGELOG.md."
        raise ProblemError(f"v{source.version}", "this tag is on another commit: the version has been released", fix)


def _git(repository: Path, *arguments: str) -> str:
    return _run(repository, *arguments).decode().strip("\n")


def _run(repository: Path, *arguments: str) -> bytes:
    ran = subprocess.run(["git", *arguments], cwd=repository, capture_output=True, check=False)
    if ran.returncode:
        raise ProblemError(str(repository), ran.stderr.decode().strip(), "Release from a clone of the repository.")
    return ran.stdout
