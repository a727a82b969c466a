"""`quorate init`: a new policy repository that is valid from the first minute."""

from __future__ import annotations

import shutil
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

import click

from reconciler.cli.output import CommandFailedError
from reconciler.shipped import shipped

_STARTER = "starter"
_VERSION_MARK = "@VERSION@"


@click.command(short_help="Start a new policy repository.")
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
def init(folder: Path) -> None:
    """Write a small policy, its inventory, schemas for editors and a CI workflow into DIR, a new Git repository.

    DIR must be new or empty, except for what Git keeps in it.
    """
    if folder.exists() and any(entry.name != ".git" for entry in folder.iterdir()):
        raise CommandFailedError("the folder is not empty", place=str(folder), fix="Name a new one.")
    try:
        _write(folder)
    except OSError as error:
        raise CommandFailedError(error.strerror or str(error), place=str(error.filename or folder)) from error
    _start_repository(folder)
    click.echo(f"A policy repository is in {folder}. Next:")
    click.echo(f"  cd {folder} && quorate validate . && git add --all && git commit -m 'First policy'")


def _write(folder: Path) -> None:
    starter = Path(str(files("reconciler.cli"))) / _STARTER
    for source in sorted(path for path in starter.rglob("*") if path.is_file()):
        target = folder / source.relative_to(starter)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(source.read_text("utf-8").replace(_VERSION_MARK, version("quorate")), "utf-8")
    shutil.copytree(shipped("schemas"), folder / ".quorate" / "schemas")


def _start_repository(folder: Path) -> None:
    if (folder / ".git").exists():
        return
    try:
        from git import Repo
    except ImportError as error:
        raise CommandFailedError("Git is not installed, so this is no repository yet", place=str(folder)) from error
    Repo.init(folder, initial_branch="main", expand_vars=False).close()
