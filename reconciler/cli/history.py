"""`quorate history`: what the control plane has on record of its jobs, as a file to be replayed."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import click

from reconciler.analysis.backtest.history_file import HistoryHead, aliased
from reconciler.analysis.backtest.past import write_history
from reconciler.cli.connection import api_client, server_option
from reconciler.cli.inputs import unreadable
from reconciler.cli.past_jobs import past_jobs
from reconciler.cli.status_line import busy
from solver.plan.reason import count


@click.group(short_help="List what became of jobs, and export it.")
def history() -> None:
    """What the control plane has on record of jobs, ended and live."""


history.add_command(past_jobs)


@history.command(short_help="Write the history of all jobs to a file.")
@click.option(
    "--out",
    required=True,
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE",
    help="The file, one JSON document a line; compressed if its name ends in .gz.",
)
@click.option("--alias", is_flag=True, help="Give jobs and users other names. Queues keep theirs.")
@server_option
def export(out: Path, alias: bool, server: str | None) -> None:
    """Write every job that you may see: its queue, class, user and shape, and when its attempts began and ended.

    No commands, no variables, no secrets. `quorate simulate --history FILE` replays it.
    """
    with api_client(server) as client, busy("reading the history"):
        pages = client.past.pages()
        first = next(pages)
        jobs = chain(first.items, chain.from_iterable(page.items for page in pages))
        try:
            number = write_history(out, HistoryHead(first.at, alias), aliased(jobs) if alias else jobs)
        except OSError as error:
            raise unreadable(error, out) from error
    click.echo(f"{count(number, 'job')} written to {out}", err=True)
