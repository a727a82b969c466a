"""`quorate wait`: blocks until jobs run or have ended."""

from __future__ import annotations

from typing import Literal

import click

from reconciler.api.payloads import JobList, JobView
from reconciler.cli.connection import connected, server_option
from reconciler.cli.exits import Exit
from reconciler.cli.output import CommandFailedError, output_option, print_json
from reconciler.cli.params import DurationParam
from reconciler.cli.wording import state_line
from reconciler.client import Client
from reconciler.clock import SystemClock
from solver.world.quantities import Duration

Goal = Literal["running", "ended"]

POLL_S = 0.5
"""How often to ask for what no event tells of; twice the pace of the loop, which acts at most once a second."""


@click.command(short_help="Wait until jobs run or have ended.")
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...")
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

    With --propagate a job that failed without an exit code, or was cancelled, counts as 1.
    """
    clock = SystemClock()
    until_s = None if timeout is None else clock.monotonic_s() + timeout.seconds
    with connected(server) as client:
        views = tuple(_wait_and_say(client, job, goal, until_s, output) for job in jobs)
    if output == "json":
        print_json(JobList(items=views))
    codes = [code for view in views if (code := exit_code_of(view))]
    ctx.exit(codes[0] if propagate and codes else Exit.OK)


def _wait_and_say(client: Client, job: str, goal: Goal, until_s: float | None, output: str) -> JobView:
    view = wait_for(client, job, goal, until_s)
    if output == "text":
        click.echo(f"{view.name}: {state_line(view, SystemClock().now())}")
    return view


def wait_for(client: Client, job: str, goal: Goal, until_s: float | None = None) -> JobView:
    """The job once it has reached the goal. `until_s` is a time of the monotonic clock.

    Raises CommandFailedError at that time, and for a job that ended without success when it should run.
    """
    clock = SystemClock()
    view = client.job(job)
    for view in client.changes(job, until_s):
        if view.outcome is not None and goal == "running" and view.state != "succeeded":
            raise CommandFailedError(f"it does not run: {state_line(view, clock.now())}", place=job)
        if view.outcome is not None or view.state == goal:
            return view
    raise CommandFailedError(
        f"still {state_line(view, clock.now())}",
        place=job,
        fix=f"`quorate why {job}` says why.",
        exit_code=Exit.WAIT_TIMED_OUT,
    )


def exit_code_of(view: JobView) -> int:
    """What a script should see of the job: 0 only if it has succeeded or not ended, else its own code, else 1."""
    outcome = view.outcome
    if outcome is None or outcome.state == "succeeded":
        return Exit.OK
    return outcome.exit_code or Exit.ERROR
