"""`quorate attach`: comes back to the terminal of a job, as `quorate submit --pty` first comes to it."""

from __future__ import annotations

import sys

import click

from reconciler.api.payloads import JobView
from reconciler.cli.completion import job_names
from reconciler.cli.connection import api_client, server_option
from reconciler.cli.exits import ExitCode
from reconciler.cli.job_names import Named, exit_code_of
from reconciler.cli.logs import TaskLog
from reconciler.cli.output import CommandFailedError
from reconciler.cli.terminal import Detachment, connect_terminal, require_terminal
from reconciler.cli.wait import wait_for
from reconciler.client import ApiError, Client

_NOT_RUNNING = "not-running"


@click.command(short_help="Attach to the terminal of a job.")
@click.argument("job", shell_complete=job_names)
@click.option("--group", default="", help="The task's group. Default: the job's first.")
@click.option("--index", type=click.IntRange(0), default=0, show_default=True, help="Which task of the group.")
@server_option
@click.pass_context
def attach(ctx: click.Context, job: str, group: str, index: int, server: str | None) -> None:
    """Attach this terminal to that of JOB, which was submitted with --pty. Ctrl-] lets go of it; the job goes on.

    Exits with the exit code of the task when that ends. Several may be attached at once, and all of them may type.
    """
    require_terminal()
    with api_client(server) as client:
        ctx.exit(attach_to(client, client.newest(job), group, index))


def wait_and_attach(client: Client, submitted: Named) -> int:
    """The same for a job that was just submitted. A user who interrupts the waiting wants it no more: it is cancelled."""
    job = submitted.name
    try:
        click.echo(f"waiting until {job} runs; Ctrl-C cancels it", err=True)
        wait_for(client, submitted, "running")
    except KeyboardInterrupt:
        client.cancel(job)
        told = "interrupted while it waited, so it was cancelled"
        raise CommandFailedError(told, place=job, exit_code=ExitCode.INTERRUPTED) from None
    try:
        return attach_to(client, job)
    except ApiError as error:
        view = client.job(job)
        if error.problem.code != _NOT_RUNNING or view.outcome is None:
            raise
        return _already_over(client, view)


def attach_to(client: Client, job: str, group: str = "", index: int = 0) -> int:
    """The exit code for the command, once the task has ended or the user has let go. Raises CommandFailedError."""
    with client.attach(job, group, index) as attachment:
        click.echo(f"attached to {job}; Ctrl-] detaches", err=True)
        came_to = connect_terminal(attachment)
    back = f"`quorate attach {job}` comes back."
    if isinstance(came_to, Detachment):
        click.echo(f"\ndetached from {job}, which goes on. {back}", err=True)
        return ExitCode.OK
    if came_to is None:
        raise CommandFailedError("the connection was lost", place=job, fix=back, exit_code=ExitCode.SERVER_UNREACHABLE)
    if came_to.reason != "ended":
        raise CommandFailedError(came_to.message, place=job, fix=back)
    if came_to.stopped:
        click.echo(f"\n{job} was told to end: `quorate why {job}` says why", err=True)
    return ExitCode.ERROR if came_to.exit_code is None else came_to.exit_code


def _already_over(client: Client, view: JobView) -> int:
    """It ended before it could be attached to: what it wrote is all there is to show."""
    for piece in TaskLog(client, view.name, "", 0, view.attempt).pieces(follow=False, tail=None):
        sys.stdout.buffer.write(piece)
    sys.stdout.flush()
    return exit_code_of(view)
