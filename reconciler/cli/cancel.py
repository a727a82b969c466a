"""`quorate cancel`: asks for jobs to end."""

from __future__ import annotations

import click

from reconciler.api.payloads import JobView
from reconciler.cli.connection import connected, server_option
from reconciler.cli.named import Named, NamedList, counts_of, find, has_ended
from reconciler.cli.output import output_option, print_json


@click.command(short_help="Ask for jobs to end.")
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...")
@output_option("text", "json")
@server_option
def cancel(jobs: tuple[str, ...], output: str, server: str | None) -> None:
    """Ask for every JOB to end: a queued one never starts, a running one is asked to stop and after a grace made to.

    The name of an array or pipeline stands for all of its jobs.

    Nothing is cancelled if one of the names does not exist. Repeating it is harmless. `quorate wait` waits for the end.
    """
    with connected(server) as client:
        found = [find(client, job) for job in jobs]
        views = tuple(
            client.cancel(each.name) if isinstance(each, JobView) else client.cancel_group(each.name) for each in found
        )
    if output == "json":
        print_json(NamedList(views))
        return
    for view in views:
        click.echo(f"{view.name}: {_said(view)}")


def _said(view: Named) -> str:
    if not has_ended(view):
        return "asked to end" if isinstance(view, JobView) else "all its jobs are asked to end"
    return f"has ended already: {view.state if isinstance(view, JobView) else counts_of(view)}"
