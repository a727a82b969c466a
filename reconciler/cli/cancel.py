"""`quorate cancel`: asks for jobs to end."""

from __future__ import annotations

import click

from reconciler.api.payloads import JobList
from reconciler.cli.connection import connected, server_option
from reconciler.cli.output import output_option, print_json


@click.command(short_help="Ask for jobs to end.")
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...")
@output_option("text", "json")
@server_option
def cancel(jobs: tuple[str, ...], output: str, server: str | None) -> None:
    """Ask for every JOB to end: a queued one never starts, a running one is asked to stop and after a grace made to.

    Nothing is cancelled if one of the names does not exist. Repeating it is harmless. `quorate wait` waits for the end.
    """
    with connected(server) as client:
        for job in jobs:
            client.job(job)
        views = tuple(client.cancel(job) for job in jobs)
    if output == "json":
        print_json(JobList(items=views))
        return
    for view in views:
        click.echo(f"{view.name}: {'has ended already: ' + view.state if view.outcome else 'asked to end'}")
