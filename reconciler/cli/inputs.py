"""Files that commands read: a folder of policies, a snapshot. What is wrong with them becomes one clear error."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from reconciler.cli.exits import ExitCode
from reconciler.cli.output import CommandFailedError, printable
from reconciler.cli.times import span
from reconciler.documents.clusters import ClusterNotChosenError, chosen, clusters_of
from reconciler.documents.files import Files, is_document, read_folder
from reconciler.documents.repository import Compiled, read_repository
from reconciler.model.problem import InvalidDocumentsError
from solver.model.quantities import Duration, Instant
from solver.model.snapshot import Snapshot
from solver.plan.reason import count


def read_policies(path: Path, cluster: str | None = None) -> Compiled:
    """The policy at a path: a repository, its folder `policies` (read with the inventory beside it), or any folder of documents.

    `cluster`: which one's, where there are several.
    """
    try:
        files = policy_files(path)
        return read_repository(files, one_cluster(clusters_of(files), cluster, str(path))).checked()
    except InvalidDocumentsError as error:
        raise invalid(error, ExitCode.POLICY_INVALID) from error
    except OSError as error:
        raise unreadable(error, path) from error


def read_policies_at(repo: Path, revision: str, cluster: str | None = None) -> tuple[str, Compiled]:
    """The commit that a revision of a Git repository names, and the policy in it. Nothing is checked out."""
    from reconciler.gitops.source.errors import GitSourceError
    from reconciler.gitops.source.tree import read_revision

    try:
        found = read_revision(repo, revision)
    except GitSourceError as error:
        raise CommandFailedError(str(error), place=revision, fix=error.fix) from error
    named = one_cluster(clusters_of(found.files), cluster, revision)
    try:
        return found.commit, read_repository(found.files, named).checked()
    except InvalidDocumentsError as error:
        raise invalid(error, ExitCode.POLICY_INVALID, where=f"{revision} ({found.commit[:12]})") from error


def read_snapshot_file(path: Path) -> Snapshot:
    """The snapshot in a JSON file."""
    from reconciler.documents.snapshot import read_snapshot

    try:
        return read_snapshot(path.read_bytes(), str(path))
    except InvalidDocumentsError as error:
        raise invalid(error, ExitCode.ERROR) from error
    except OSError as error:
        raise unreadable(error, path) from error


def young_enough(snapshot: Snapshot, path: Path | None, most: Duration | None, now: Instant) -> Snapshot:
    """The snapshot, unless it is older than asked for. `path`: its file; its age is told on stderr without a limit."""
    age = Duration(max(0, now - snapshot.time))
    told = f"the snapshot is {span(age)} old, of {snapshot.time}"
    if most is not None and age > most:
        fix = "Export it again: quorate snapshot export." if path else "See `quorate status`: no round is decided."
        message = f"{told}; at most {most} is allowed"
        raise CommandFailedError(message, place=str(path or "the server"), fix=fix, exit_code=ExitCode.STALE_PLAN)
    if most is None and path:
        click.echo(f"note: {printable(str(path))}: {told}", err=True)
    return snapshot


def one_cluster(clusters: Iterable[str], cluster: str | None, place: str) -> str | None:
    """The cluster that is meant, None where it has no name; a usage error where that is not clear."""
    try:
        return chosen(clusters, cluster)
    except ClusterNotChosenError as error:
        raise CommandFailedError(str(error), place=place, fix=error.fix, exit_code=ExitCode.USAGE) from error


def invalid(error: InvalidDocumentsError, exit_code: ExitCode, where: str = "") -> CommandFailedError:
    """All problems of the documents: one as any error, several each on a line with its fix.

    `where` says which documents, if that is not plain.
    """
    first, *more = error.problems
    if more:
        lines = "".join(f"\n  {problem}" for problem in error.problems)
        return CommandFailedError(f"{count(len(error.problems), 'problem')}{lines}", place=where, exit_code=exit_code)
    place = f"{where}: " * bool(where) + f"{first.file}:{first.line}:{first.column}"
    return CommandFailedError(first.message, place=place, fix=first.fix, exit_code=exit_code)


def unreadable(error: OSError, path: Path) -> CommandFailedError:
    """A file that can't be opened."""
    return CommandFailedError(error.strerror or str(error), place=str(error.filename or path))


def folder_here(named: str = "") -> str:
    """The whole path of a folder that is named from this one; "": of this one. Raises CommandFailedError."""
    try:
        folder = str(Path.cwd() / named)
    except OSError as error:
        fix = "Go to a folder that is there, and submit it again."
        raise CommandFailedError("the folder that you are in is gone", fix=fix) from error
    try:
        folder.encode()
    except UnicodeEncodeError as error:
        fix = "Say --chdir DIR with another one, or --chdir none for an empty folder of each task's own."
        raise CommandFailedError("the name of this folder is not UTF-8", place=ascii(folder), fix=fix) from error
    return folder


def policy_files(path: Path) -> Files:
    """The files of such a policy. Raises OSError, CommandFailedError."""
    if (path / "policies").is_dir():
        return read_folder(path)
    if path.resolve().name == "policies":
        return read_folder(path.resolve().parent)
    documents = sorted(entry for entry in path.rglob("*") if is_document(entry.name) and entry.is_file())
    if not documents:
        fix = "Name a policy repository, or a folder with .yaml documents."
        raise CommandFailedError("no documents here", place=str(path), fix=fix)
    return Files({f"policies/{entry.relative_to(path).as_posix()}": entry.read_bytes() for entry in documents})
