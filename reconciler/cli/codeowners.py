"""`quorate codeowners`: the file by which a repository's host asks for reviews the users that access names."""

from __future__ import annotations

from pathlib import Path

import click

from reconciler.cli.exits import ExitCode
from reconciler.cli.inputs import invalid, unreadable
from reconciler.cli.output import CommandFailedError
from reconciler.documents.clusters import clusters_of
from reconciler.documents.codeowners import PLACES, Clusters, CodeOwnersFile, section, terms_of, with_section
from reconciler.documents.files import read_folder
from reconciler.documents.repository import read_repository
from reconciler.model.problem import InvalidDocumentsError

_BYTES_MAX = 3 * 1024 * 1024
"""GitHub reads no larger one."""


@click.command(short_help="Write the CODEOWNERS file: the reviewers of each file.")
@click.argument("path", default=".", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--write", is_flag=True, help="Write it into the repository's CODEOWNERS file, and leave other lines alone."
)
def codeowners(path: Path, write: bool) -> None:
    """Print what the CODEOWNERS file of the policy repository at PATH should say, from `access` and `codeOwners.handles`."""
    clusters = _clusters(path)
    terms = terms_of(clusters)
    if not terms.handles:
        fix = "Name them in codeOwners.handles of the AccessPolicy: group:vision-leads: '@example/vision-leads'."
        raise CommandFailedError("no owner has a handle at the repository's host", place=str(path), fix=fix)
    written = code_owners_of(path, clusters) or CodeOwnersFile(PLACES[terms.forge][0], "")
    wanted = section(clusters, written.path)
    if not write:
        click.echo(wanted, nl=False)
        return
    target = path / written.path
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(with_section(written.text, wanted), "utf-8")
    except OSError as error:
        raise unreadable(error, target) from error
    click.echo(f"wrote {target}")


def code_owners_of(path: Path, clusters: Clusters) -> CodeOwnersFile | None:
    """The CODEOWNERS file that the host of a work tree would read; None: there is none. Links are not followed."""
    for place in PLACES[terms_of(clusters).forge]:
        file = path / place
        if file.is_symlink() or file.parent.is_symlink():
            raise CommandFailedError("this is a symbolic link, and links are not followed", place=str(file))
        if file.is_file():
            return CodeOwnersFile(place, _text(file))
    return None


def _text(file: Path) -> str:
    try:
        if file.stat().st_size > _BYTES_MAX:
            raise CommandFailedError(f"the file has more than {_BYTES_MAX} bytes", place=str(file), fix="Shorten it.")
        return file.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise CommandFailedError("the file is not UTF-8", place=str(file), fix="Save it as UTF-8.") from error
    except OSError as error:
        raise unreadable(error, file) from error


def _clusters(path: Path) -> Clusters:
    try:
        files = read_folder(path)
        return {name: read_repository(files, name).checked() for name in clusters_of(files) or (None,)}
    except InvalidDocumentsError as error:
        raise invalid(error, ExitCode.POLICY_INVALID) from error
    except OSError as error:
        raise unreadable(error, path) from error
