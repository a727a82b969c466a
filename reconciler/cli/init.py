"""`quorate init`: a new policy repository that is valid from the first minute."""

from __future__ import annotations

import getpass
import shutil
import socket
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from shlex import quote

import click

from reconciler.cli.install_source import InstallSource, UnknownSourceError, named_source, own_source
from reconciler.cli.output import CommandFailedError, print_warning
from reconciler.documents.schemas import data_folder

_STARTER = "starter"
_HOSTS = "hosts"
"""A folder for each host of repositories, with what its CI needs."""
_OURS = ".quorate"
_REQUIREMENTS = f"{_OURS}/requirements.txt"

_KNOWN = """\
# Where CI installs Quorate from. `quorate init` found it, or was told; to update Quorate, write the new place here.
# Never write the bare name: on a public index any user may register it, and that code would run in CI.
"""
_UNKNOWN = """\
# Write here where CI is to install Quorate from, as one of these; until then its checks fail and say so.
#   quorate @ git+https://git.example.com/quorate@COMMIT
#   quorate @ https://files.example.com/quorate-0.2.0-py3-none-any.whl#sha256=HASH
# Never write the bare name: on a public index any user may register it, and that code would run in CI.
"""


@click.command(short_help="Start a new policy repository.")
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--ci",
    multiple=True,
    default=("github",),
    show_default=True,
    type=click.Choice(("github", "gitlab", "gitea", "none")),
    help="The host whose CI checks and plans changes; may be repeated.",
)
@click.option(
    "--install-from",
    metavar="URL|WHEEL",
    help="Where CI installs Quorate from: git+URL@COMMIT, the URL of a wheel with its #sha256, the file of a wheel, or the "
    "URL of an index of packages.  [default: where this installation came from]",
)
@click.pass_context
def init(ctx: click.Context, folder: Path, ci: tuple[str, ...], install_from: str | None) -> None:
    """Write a small policy, its inventory, a first job, schemas for editors and CI into DIR, a Git repository with one commit.

    DIR must be new or empty, except for what Git keeps in it.
    """
    if "none" in ci and len(set(ci)) > 1:
        raise click.UsageError("--ci none excludes every other", ctx)
    if folder.exists() and any(entry.name != ".git" for entry in folder.iterdir()):
        raise CommandFailedError("the folder is not empty", place=str(folder), fix="Name a new one.")
    source, unknown = _source(ctx, install_from)
    try:
        _write(folder, sorted(set(ci) - {"none"}), source)
    except OSError as error:
        raise CommandFailedError(error.strerror or str(error), place=str(error.filename or folder)) from error
    uncommitted = _commit(folder)
    if unknown and "none" not in ci:
        fix = f"Write the place into {folder / _REQUIREMENTS}, or begin again with --install-from; --ci none leaves CI out."
        print_warning(f"CI does not know where to install Quorate from: {unknown}", fix=fix)
    _tell(folder, uncommitted)


def _source(ctx: click.Context, install_from: str | None) -> tuple[InstallSource | None, str]:
    """Where CI is to install from, else why that isn't known."""
    try:
        return (own_source(_OURS) if install_from is None else named_source(install_from, _OURS)), ""
    except UnknownSourceError as error:
        return None, str(error)
    except ValueError as error:
        raise click.UsageError(f"--install-from: {error}", ctx) from error


def _write(folder: Path, hosts: Sequence[str], source: InstallSource | None) -> None:
    ours = Path(str(files("reconciler.cli")))
    for part in (ours / _STARTER, *(ours / _HOSTS / host for host in hosts)):
        shutil.copytree(part, folder, dirs_exist_ok=True)
    shutil.copytree(data_folder("schemas"), folder / _OURS / "schemas")
    lines = (_KNOWN + "\n".join(source.lines) + "\n") if source else _UNKNOWN
    (folder / _REQUIREMENTS).write_text(lines, "utf-8")
    if source and source.wheel:
        shutil.copyfile(source.wheel, folder / _OURS / source.wheel.name)


def _commit(folder: Path) -> str:
    """Commit everything, as the repository's first revision. Returns why Git would not, or ""."""
    try:
        from git import GitCommandError, Repo
    except ImportError as error:
        raise CommandFailedError("Git is not installed, so this is no repository yet", place=str(folder)) from error
    is_new = not (folder / ".git").exists()
    with Repo.init(folder, initial_branch="main", expand_vars=False) if is_new else Repo(folder) as repository:
        if repository.head.is_valid():
            return "the repository has commits already"
        repository.git.add("--all")
        with repository.config_reader() as config:
            has_author = config.has_option("user", "email")
        user = getpass.getuser()
        author = [] if has_author else ["-c", f"user.name={user}", "-c", f"user.email={user}@{socket.gethostname()}"]
        try:
            repository.git.execute(["git", *author, "commit", "--quiet", "--message", "First policy"])
        except GitCommandError as error:
            return error.stderr.strip().removeprefix("stderr:").strip(" '\n")
    return ""


def _tell(folder: Path, uncommitted: str) -> None:
    at = quote(str(folder))
    if uncommitted:
        print_warning(f"it is not committed yet: {uncommitted}", place=str(folder), fix="Commit it before the rest.")
    committed = "" if uncommitted else ", with its first commit"
    click.echo(f"A policy repository is in {folder}{committed}. Next, the second and third in another terminal:")
    click.echo(f"  quorate run --policies-repo {at}")
    click.echo(f"  quorate submit -f {at}/jobs/hello.yaml")
    click.echo("  quorate why hello")
