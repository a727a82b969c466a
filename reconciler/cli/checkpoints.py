"""`quorate checkpoints`: what a job has saved, what was found wrong with it, and from where it would go on."""

from __future__ import annotations

import click

from reconciler.api.payloads import CheckpointList
from reconciler.cli.completion import job_names
from reconciler.cli.connection import api_client, server_option
from reconciler.cli.output import output_option, print_json
from reconciler.cli.tables import print_table
from reconciler.cli.times import span
from reconciler.model.checkpoint_record import CheckpointRecord
from reconciler.model.clock import SystemClock
from solver.model.quantities import Instant

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


@click.command(short_help="List what a job has saved.")
@click.argument("job", shell_complete=job_names)
@click.option("--all", "everything", is_flag=True, help="Deleted ones too.")
@output_option("text", "json")
@server_option
def checkpoints(job: str, everything: bool, output: str, server: str | None) -> None:
    """List the checkpoints of JOB, newest first: step, attempt, size, state, and what is wrong with it.

    A job that starts again goes on from the newest that is verified.
    """
    with api_client(server) as client:
        found = client.checkpoints(client.newest(job)).items
    listed = tuple(each for each in found if everything or each.state != "deleted")
    if output == "json":
        print_json(CheckpointList(items=listed))
    elif listed:
        now = SystemClock().now()
        headings = ("STEP", "ATTEMPT", "TASKS", "SIZE", "STATE", "AGE", "FINDINGS")
        print_table(headings, (_row(each, now) for each in listed), right=("STEP", "ATTEMPT", "TASKS", "SIZE", "AGE"))
    else:
        click.echo("no checkpoints")


def _row(checkpoint: CheckpointRecord, now: Instant) -> list[str]:
    return [
        str(checkpoint.step),
        str(checkpoint.attempt),
        str(checkpoint.world_size),
        _size(int(checkpoint.size)),
        checkpoint.state,
        span(now - checkpoint.at),
        "; ".join(map(str, checkpoint.findings)),
    ]


def _size(count: float) -> str:
    for unit in _UNITS[:-1]:
        if count < 1024:
            return f"{count:.1f} {unit}" if unit != "B" else f"{count:.0f} B"
        count /= 1024
    return f"{count:.1f} {_UNITS[-1]}"
