"""`quorate wait`: blocks until jobs run or have ended."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Literal

import click

from reconciler.api.group_payloads import GroupView
from reconciler.api.payloads import JobView
from reconciler.cli.completion import job_names
from reconciler.cli.connection import api_client, server_option
from reconciler.cli.exits import ExitCode
from reconciler.cli.job_names import Named, NamedList, counts_of, exit_code_of, find, has_ended
from reconciler.cli.output import CommandFailedError, output_option, print_json
from reconciler.cli.params import DurationParam
from reconciler.cli.phrases import state_line
from reconciler.cli.status_line import status_line
from reconciler.client import Client
from reconciler.model.clock import SystemClock
from reconciler.model.job_record import WAITING
from solver.model.quantities import Duration

Goal = Literal["running", "ended"]

POLL_S = 0.5
"""How often to ask for what no event tells of; twice the pace of the loop, which acts at most once a second."""


@click.command(short_help="Wait until jobs run or have ended.")
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...", shell_complete=job_names)
@click.option(
    "--for",
    "goal",
    type=click.Choice(["running", "ended"]),
    default="ended",
    show_default=True,
    help="What to wait for.",
)
@click.option("--timeout", type=DurationParam(), help="Give up after this long, with exit code 7. Default: never.")
@click.option("--propagate", is_flag=True, help="Exit with the exit code of the first JOB that did not succeed.")
@output_option("text", "json")
@server_option
@click.pass_context
def wait(
    ctx: click.Context,
    jobs: tuple[str, ...],
    goal: Goal,
    timeout: Duration | None,
    propagate: bool,
    output: str,
    server: str | None,
) -> None:
    """Wait until every JOB has ended, however it did, or runs. A job that ends without success never runs: an error.

    With --propagate a job that failed without an exit code, or was cancelled, counts as 1. The name of an array or pipeline stands
    for all of its jobs, and for the highest of their exit codes.
    """
    clock = SystemClock()
    until_s = None if timeout is None else clock.monotonic_s() + timeout.seconds
    with api_client(server) as client:
        # A wrong name is told now, not once those before it have ended; and what is meant by each stays the same until then.
        found = [find(client, job) for job in jobs]
        views = tuple(_wait_and_say(client, each, goal, until_s, output) for each in found)
    if output == "json":
        print_json(NamedList(views))
    codes = [code for view in views if (code := exit_code_of(view))]
    ctx.exit(codes[0] if propagate and codes else ExitCode.OK)


def _wait_and_say(client: Client, job: Named, goal: Goal, until_s: float | None, output: str) -> Named:
    view = wait_for(client, job, goal, until_s)
    if output == "text":
        click.echo(f"{view.name}: {_words(view)}")
    return view


def _words(view: Named) -> str:
    return state_line(view, SystemClock().now()) if isinstance(view, JobView) else counts_of(view)


def wait_for(client: Client, found: Named, goal: Goal, until_s: float | None = None) -> Named:
    """The job, or the group, once it has reached the goal. `until_s` is a time of the monotonic clock.

    Raises CommandFailedError at that time, and for a job that ended without success when it should run.
    """
    view, job = found, found.name
    with status_line() as tell:
        for view in _looks(client, found, until_s):
            if _reached(view, goal):
                return view
            tell(waiting_words(client, view))
    fix = f"`quorate why {job}` says why." if isinstance(view, JobView) else ""
    raise CommandFailedError(f"still {_words(view)}", place=job, fix=fix, exit_code=ExitCode.WAIT_TIMED_OUT)


def waiting_words(client: Client, view: Named) -> str:
    """`training: queued; needs 32 H100, 0 free`: where it stands, and what it waits for."""
    if isinstance(view, GroupView):
        return f"{view.name}: {counts_of(view)}"
    reason = next(iter(client.why(view.name).words), "") if view.state in WAITING else ""
    return f"{view.name}: {view.state_word}" + (f"; {reason}" if reason else "")


def _looks(client: Client, view: Named, until_s: float | None) -> Iterator[Named]:
    """The job or group now, and again whenever it may have changed, until a time of the monotonic clock."""
    yield view
    if isinstance(view, JobView):
        yield from client.changes(view.name, until_s)
        return
    clock = SystemClock()
    while until_s is None or clock.monotonic_s() < until_s:
        time.sleep(POLL_S if until_s is None else max(0.0, min(POLL_S, until_s - clock.monotonic_s())))
        yield client.group(view.name)


def _reached(view: Named, goal: Goal) -> bool:
    if isinstance(view, GroupView):
        if goal == "running":
            fix = "Wait for one of its jobs, or for all of them to have ended."
            raise CommandFailedError(f"the jobs of {view.kind} {view.name} don't run all at once", fix=fix)
        return has_ended(view)
    if view.outcome is not None and goal == "running" and view.state != "succeeded":
        raise CommandFailedError(f"it does not run: {_words(view)}", place=view.name)
    return view.outcome is not None or view.state == goal
