"""`quorate init`: a new policy repository that is valid from the first minute."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

import click

from reconciler.cli.output import CommandFailedError
from reconciler.shipped import shipped

_STARTER = "starter"
_HOSTS = "hosts"
"""A folder for each host of repositories, with what its CI needs."""
_VERSION_MARK = "@VERSION@"


@click.command(short_help="Start a new policy repository.")
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--ci",
    multiple=True,
    default=("github",),
    show_default=True,
    type=click.Choice(("github", "gitlab", "none")),
    help="The host whose CI checks and plans changes; may be repeated.",
)
@click.pass_context
def init(ctx: click.Context, folder: Path, ci: tuple[str, ...]) -> None:
    """Write a small policy, its inventory, schemas for editors and CI into DIR, a new Git repository.

    DIR must be new or empty, except for what Git keeps in it.
    """
    if "none" in ci and len(set(ci)) > 1:
        raise click.UsageError("--ci none excludes every other", ctx)
    if folder.exists() and any(entry.name != ".git" for entry in folder.iterdir()):
        raise CommandFailedError("the folder is not empty", place=str(folder), fix="Name a new one.")
    try:
        _write(folder, sorted(set(ci) - {"none"}))
    except OSError as error:
        raise CommandFailedError(error.strerror or str(error), place=str(error.filename or folder)) from error
    _start_repository(folder)
    click.echo(f"A policy repository is in {folder}. Next:")
    click.echo(f"  cd {folder} && quorate validate . && git add --all && git commit -m 'First policy'")


def _write(folder: Path, hosts: Sequence[str]) -> None:
    ours = Path(str(files("reconciler.cli")))
    for part in (ours / _STARTER, *(ours / _HOSTS / host for host in hosts)):
        _write_part(part, folder)
    shutil.copytree(shipped("schemas"), folder / ".quorate" / "schemas")


def _write_part(part: Path, folder: Path) -> None:
    for source in sorted(path for path in part.rglob("*") if path.is_file()):
        target = folder / source.relative_to(part)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(source.read_text("utf-8").replace(_VERSION_MARK, version("quorate")), "utf-8")


def _start_repository(folder: Path) -> None:
    if (folder / ".git").exists():
        return
    try:
        from git import Repo
    except ImportError as error:
        raise CommandFailedError("Git is not installed, so this is no repository yet", place=str(folder)) from error
    Repo.init(folder, initial_branch="main", expand_vars=False).close()
