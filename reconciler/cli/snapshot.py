"""`quorate snapshot export`: the cluster and its jobs as a file that may leave the house, for `quorate plan` in CI."""

from __future__ import annotations

import gzip
from pathlib import Path

import click

from reconciler.access.token_file import TokenFileError, read_or_make_token
from reconciler.api.aliases import aliased, bare
from reconciler.cli.connection import api_client, server_option
from reconciler.cli.exits import ExitCode
from reconciler.cli.inputs import read_snapshot_file, unreadable
from reconciler.cli.output import CommandFailedError
from solver.model.document import encode
from solver.model.snapshot import Snapshot
from solver.plan.reason import count


@click.group(short_help="Export the cluster and its jobs as a file.")
def snapshot() -> None:
    """The cluster and its jobs at an instant, as `quorate plan` and `quorate solve` read them."""


@snapshot.command(short_help="Write a snapshot without what is private.")
@server_option
@click.option(
    "--snapshot",
    "snapshot_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Export from a file instead of from a server.",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file to write, compressed if it ends in .gz; without it, stdout.",
)
@click.option("--alias/--no-alias", default=True, show_default=True, help="Give users and jobs other names.")
@click.option(
    "--key",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="With --snapshot: the key of the aliases, made if there is none (mode 0600). A server has its own.",
)
@click.pass_context
def export(
    ctx: click.Context, server: str | None, snapshot_file: Path | None, out: Path | None, alias: bool, key: Path | None
) -> None:
    """Write a snapshot without commands, environments, secrets and users, by default under other names of jobs.

    A job's alias ends in the same letters in every export that is made with the same key.
    """
    if snapshot_file and server:
        raise click.UsageError("--snapshot and --server exclude each other: the snapshot comes from one of them", ctx)
    if bool(key) != bool(snapshot_file and alias):
        said = (
            "say with --key where the key of the aliases is"
            if alias and not key
            else "--key is for aliases of --snapshot"
        )
        raise click.UsageError(said, ctx)
    if snapshot_file:
        whole = read_snapshot_file(snapshot_file)
        found = aliased(whole, _key(key)) if key else bare(whole)
    else:
        with api_client(server) as client:
            found = client.snapshot(aliased=True) if alias else bare(client.snapshot())
    _write(found, out)


def _key(path: Path) -> str:
    try:
        return read_or_make_token(path, "key")
    except TokenFileError as error:
        raise CommandFailedError(str(error), exit_code=ExitCode.ERROR) from error


def _write(found: Snapshot, out: Path | None) -> None:
    raw = encode(found) + b"\n"
    if out is None:
        click.echo(raw, nl=False)
        return
    try:
        # Without the time of writing, so that the same snapshot is the same file.
        out.write_bytes(gzip.compress(raw, mtime=0) if out.suffix == ".gz" else raw)
    except OSError as error:
        raise unreadable(error, out) from error
    click.echo(
        f"wrote {out}: {count(len(found.nodes), 'node')} and {count(len(found.jobs), 'job')}, as of {found.time}"
    )
