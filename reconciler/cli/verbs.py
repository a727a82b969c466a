"""`quorate cancel`, `suspend`, `resume` and `requeue`: what people ask of jobs by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import click

from reconciler.api.payloads import JobView
from reconciler.cli.completion import job_names, queue_names
from reconciler.cli.connection import api_client, server_option
from reconciler.cli.get import LIVE
from reconciler.cli.job_names import Named, NamedList, counts_of, find, has_ended
from reconciler.cli.output import output_option, print_json
from reconciler.client import Client
from reconciler.model.job_record import TERMINAL, JobState


class Verb(NamedTuple):
    """What is asked of each job, and the words for it."""

    ask: Callable[[Client, str], JobView]
    summary: str
    explanation: str
    asked: str


_REPEATED = """

    The name of an array or pipeline stands for all of its jobs. Nothing is asked of any of them
    if one of the names does not exist. Repeating it is harmless."""

VERBS: Final = {
    "cancel": Verb(
        Client.cancel,
        "Ask jobs to end.",
        "Ask for every JOB to end: a queued one never starts, a running one is asked to stop and after a grace made to."
        " `quorate wait` waits for the end.",
        "asked to end",
    ),
    "suspend": Verb(
        Client.suspend,
        "Take back what jobs hold, until they are resumed.",
        "Let every JOB give back what it holds, as an eviction does, and wait until a user resumes it.",
        "asked to wait until it is resumed",
    ),
    "resume": Verb(
        Client.resume,
        "Put suspended jobs back into their queue.",
        "Let every suspended JOB wait for its turn again; one that has saved its work goes on from there.",
        "resumed",
    ),
    "requeue": Verb(
        Client.requeue,
        "Stop running jobs; they wait and start again.",
        "Let every JOB that holds devices give them back, as an eviction does, and wait for its turn again.",
        "asked to begin anew",
    ),
}


def _command(name: str, verb: Verb) -> click.Command:
    @click.argument("jobs", nargs=-1, metavar="[JOB...]", shell_complete=job_names)
    @click.option("-u", "--user", help="In place of JOB: all of this user that have not ended.")
    @click.option("--me", is_flag=True, help="In place of JOB: all of the user whose token this is.")
    @click.option("--queue", shell_complete=queue_names, help="In place of JOB: all in this queue or below it.")
    @click.option(
        "--state",
        "states",
        multiple=True,
        type=click.Choice(LIVE),
        help="Of those only the ones in this state; repeatable.",
    )
    @output_option("text", "json")
    @server_option
    def ask(
        jobs: tuple[str, ...],
        user: str | None,
        me: bool,
        queue: str | None,
        states: tuple[JobState, ...],
        output: str,
        server: str | None,
    ) -> None:
        if bool(jobs) == bool(user or me or queue):
            raise click.UsageError("name each JOB, or say which by --user, --me or --queue")
        with api_client(server) as client:
            if jobs:
                found = [find(client, job) for job in jobs]
            else:
                named = client.who_am_i().user if me else user or ""
                found = [*client.all_jobs(queue=queue or "", user=named, states=states or LIVE)]
            views = tuple(_ask(client, verb, each) for each in found)
        if output == "json":
            print_json(NamedList(views))
            return
        for view in views:
            click.echo(f"{view.name}: {_said(view, verb)}")
        if not views:
            click.echo("no jobs")

    return click.command(name, help=verb.explanation + _REPEATED, short_help=verb.summary)(ask)


def _ask(client: Client, verb: Verb, of: Named) -> Named:
    """Ask it of the job, or of every job of the group that has not ended; a group is cancelled at once."""
    if isinstance(of, JobView):
        return verb.ask(client, of.name)
    if verb is VERBS["cancel"]:
        return client.cancel_group(of.name)
    for job in of.jobs:
        if job.state not in TERMINAL:
            verb.ask(client, job.name)
    return client.group(of.name)


def _said(view: Named, verb: Verb) -> str:
    if has_ended(view):
        return f"has ended already: {view.state if isinstance(view, JobView) else counts_of(view)}"
    return verb.asked if isinstance(view, JobView) else f"all its jobs: {verb.asked}"


cancel, suspend, resume, requeue = (_command(name, verb) for name, verb in VERBS.items())
