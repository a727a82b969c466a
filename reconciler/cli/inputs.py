"""Files that commands read: a folder of policies, a snapshot. What is wrong with them becomes one clear error."""

from __future__ import annotations

from pathlib import Path

from reconciler.cli.exits import Exit
from reconciler.cli.output import CommandFailedError
from reconciler.documents.files import Files, is_document, read_folder
from reconciler.documents.problem import InvalidDocumentsError
from reconciler.documents.repository import Compiled, read_repository
from solver.world.snapshot import Snapshot


def read_policies(path: Path) -> Compiled:
    """The policy at a path: a repository, its folder `policies` (read with the inventory beside it), or any folder of documents."""
    try:
        return read_repository(_files(path)).checked()
    except InvalidDocumentsError as error:
        raise invalid(error, Exit.POLICY_INVALID) from error
    except OSError as error:
        raise unreadable(error, path) from error


def read_policies_at(repo: Path, revision: str) -> tuple[str, Compiled]:
    """The commit that a revision of a Git repository names, and the policy in it. Nothing is checked out."""
    from reconciler.gitsource.errors import GitSourceError
    from reconciler.gitsource.tree import read_revision

    try:
        found = read_revision(repo, revision)
    except GitSourceError as error:
        raise CommandFailedError(str(error), place=revision, fix=error.fix) from error
    try:
        return found.commit, read_repository(found.files).checked()
    except InvalidDocumentsError as error:
        raise invalid(error, Exit.POLICY_INVALID, where=f"{revision} ({found.commit[:12]})") from error


def read_snapshot_file(path: Path) -> Snapshot:
    """The snapshot in a JSON file."""
    from reconciler.documents.snapshot import read_snapshot

    try:
        return read_snapshot(path.read_bytes(), str(path))
    except InvalidDocumentsError as error:
        raise invalid(error, Exit.ERROR) from error
    except OSError as error:
        raise unreadable(error, path) from error


def invalid(error: InvalidDocumentsError, exit_code: Exit, where: str = "") -> CommandFailedError:
    """All problems of the documents, the first as the error's place; `where` says which documents, if that is not plain."""
    first, *more = error.problems
    others = "".join(f"\n  {problem}" for problem in more)
    place = f"{where}: " * bool(where) + f"{first.file}:{first.line}:{first.column}"
    return CommandFailedError(f"{first.message}{others}", place=place, fix=first.fix, exit_code=exit_code)


def unreadable(error: OSError, path: Path) -> CommandFailedError:
    """A file that can't be opened."""
    return CommandFailedError(error.strerror or str(error), place=str(error.filename or path))


def _files(path: Path) -> Files:
    if (path / "policies").is_dir():
        return read_folder(path)
    if path.resolve().name == "policies":
        return read_folder(path.resolve().parent)
    documents = sorted(entry for entry in path.rglob("*") if is_document(entry.name) and entry.is_file())
    if not documents:
        fix = "Name a policy repository, or a folder with .yaml documents."
        raise CommandFailedError("no documents here", place=str(path), fix=fix)
    return Files({f"policies/{entry.relative_to(path).as_posix()}": entry.read_bytes() for entry in documents})
