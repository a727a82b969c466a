"""`quorate apply`, `reconcile`, `suspend-reconcile` and `resume-reconcile`: what people do about following Git."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import click

from reconciler.api.payloads import Condition, Status
from reconciler.api.policy_payloads import ApprovalList, PlanAccepted, SuspensionList
from reconciler.cli.connection import api_client, server_option
from reconciler.cli.exits import ExitCode
from reconciler.cli.output import CommandFailedError, output_option, print_json, printable
from reconciler.cli.params import DurationParam
from reconciler.cli.phrases import short_revision
from reconciler.cli.saved_plan import read_plan
from reconciler.cli.times import local
from reconciler.client import Client
from reconciler.model.clock import SystemClock
from reconciler.model.git_record import Suspension
from solver.model.quantities import Duration, Instant
from solver.plan.reason import count

POLL_S: Final = 0.3
"""How often to ask whether the look is over; fetching takes about as long."""

CONCLUDED: Final = ("Ready", "Stalled")
"""Conditions after which nothing more happens by itself. What is Reconciling is tried again."""


@click.command(short_help="Approve a policy revision that is held, or a saved plan.")
@click.argument("target", metavar="PLAN.json|REVISION")
@click.option("--reason", required=True, metavar="TEXT", help="Why, for the record.")
@output_option("text", "json")
@server_option
def apply(target: str, reason: str, output: str, server: str | None) -> None:
    """Accept the REVISION that `quorate status` shows as held, for the reason it shows, in place of the one in force.

    It counts once, for this commit alone, and is on record with your name. Needs the role admin in all queues. What is invalid or
    not signed can't be accepted: only another revision helps.

    Or accept what PLAN.json (from `quorate plan --out`) says of a revision, before it is merged or while it is held. Exits with 4
    where the plan is stale.
    """
    said: PlanAccepted | ApprovalList
    if target.endswith(".json"):
        envelope = read_plan(Path(target)).envelope
        with api_client(server) as client:
            done = client.following.accept_plan(envelope, reason)
        told, said = _accepted(done), done
    else:
        with api_client(server) as client:
            approval = client.following.approve(target, reason)
        revision = short_revision(approval.commit)
        told, said = (
            f"{revision}: {approval.reason} accepted by {approval.author}: {approval.why}",
            ApprovalList(items=(approval,)),
        )
    if output == "json":
        print_json(said)
    else:
        click.echo(printable(told))


def _accepted(done: PlanAccepted) -> str:
    accepts, meaning = done.accepted.envelope.accepts, done.accepted.envelope.meaning.removeprefix("sha256:")[:12]
    if done.in_force:
        return f"{meaning}: what the plan proposes is in force already"
    most = f"at most {count(accepts.evicted_jobs, 'job')} evicted, {accepts.lost_gpu_h:.1f} GPU-hours lost"
    return f"{meaning}: {most}, accepted by {done.accepted.author}: {done.accepted.why}"


@click.command(short_help="Make the server look at Git now.")
@click.option(
    "--wait", is_flag=True, help="Wait until the newest revision is in force, or held: then exit with code 1."
)
@click.option(
    "--timeout",
    type=DurationParam(),
    default="5m",
    show_default=True,
    help="Give up waiting after this long, with exit code 7.",
)
@output_option("text", "json")
@server_option
def reconcile(wait: bool, timeout: Duration, output: str, server: str | None) -> None:
    """Fetch the policy's branch now, rather than with the next poll. Says what came of it with --wait."""
    with api_client(server) as client:
        asked_at = client.following.look()
        status = _outcome(client, asked_at, timeout) if wait else client.status()
    if output == "json":
        print_json(status)
    elif not wait:
        click.echo("Git is being looked at; `quorate status` says what comes of it.")
    if not wait:
        return
    truth = _truth(status)
    if truth.type == "Stalled":
        raise CommandFailedError(printable(truth.message), fix="`quorate status` shows the rest.")
    if output == "text":
        click.echo(printable(truth.message))


@click.command("suspend-reconcile", short_help="Stop following Git for a while.")
@click.option("--reason", required=True, metavar="TEXT", help="Why, for the next operator.")
@click.option(
    "--until",
    default="",
    metavar="SPAN|TIME",
    help="A span such as 4h, or a time. Left out: until a user resumes.",
)
@output_option("text", "json")
@server_option
def suspend_reconcile(reason: str, until: str, output: str, server: str | None) -> None:
    """Stop following Git: nothing is fetched, and rounds go on under the policy in force. Survives restarts of the server."""
    with api_client(server) as client:
        _print(client.following.suspend(reason, until), output)


@click.command("resume-reconcile", short_help="Follow Git again.")
@output_option("text", "json")
@server_option
def resume_reconcile(output: str, server: str | None) -> None:
    """Follow Git again, and look at it now."""
    with api_client(server) as client:
        _print(client.following.resume(), output)


def _print(suspension: Suspension | None, output: str) -> None:
    if output == "json":
        print_json(SuspensionList(items=(suspension,) if suspension else ()))
    elif suspension is None:
        click.echo("Git was being followed.")
    elif suspension.ended_at is not None:
        click.echo(printable(f"Git is followed again. It was {suspension}"))
    else:
        end = f"until {local(suspension.until)}" if suspension.until is not None else "until `quorate resume-reconcile`"
        click.echo(printable(f"Git is not followed {end}: {suspension.why}"))


def _outcome(client: Client, asked_at: Instant, timeout: Duration) -> Status:
    """The status once a look that began since has concluded. Raises CommandFailedError where that takes too long."""
    clock = SystemClock()
    until_s = clock.monotonic_s() + timeout.seconds
    while True:
        status = client.status()
        over = status.looked_at is not None and status.looked_at >= asked_at
        if over and _truth(status).type in CONCLUDED:
            return status
        if clock.monotonic_s() >= until_s:
            message = f"no outcome within {timeout}: {_truth(status).message}"
            raise CommandFailedError(printable(message), exit_code=ExitCode.WAIT_TIMED_OUT)
        time.sleep(POLL_S)


def _truth(status: Status) -> Condition:
    """The one of the conditions about Git that holds."""
    of_git = (*CONCLUDED, "Reconciling")
    return next(condition for condition in status.conditions if condition.status and condition.type in of_git)
