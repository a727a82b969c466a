"""`quorate cordon`, `uncordon`, `hold` and `boost`: what people do by hand, each with a reason and an end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import click

from reconciler.api.payloads import InterventionList, JobView
from reconciler.cli.completion import job_names, queue_names
from reconciler.cli.connection import api_client, server_option
from reconciler.cli.job_names import find
from reconciler.cli.output import CommandFailedError, output_option, print_json, printable
from reconciler.cli.times import local
from reconciler.client import Client
from reconciler.client.calls import ByHand
from reconciler.model.intervention_record import Intervention
from reconciler.model.job_record import TERMINAL

Begin = Callable[[ByHand, str, str, str], Intervention]
Release = Callable[[ByHand, str], Intervention | None]
Deed = tuple[str, Intervention | None]
"""A name, and what came of it; None: nothing was in force."""


def _ending(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options `--reason` and `--until`, the same on every command that puts something in force."""
    told = "Until when: a span such as 4h, or a time such as 2026-11-22T08:00:00Z. 4h unless stated."
    command = click.option("--until", default="", metavar="SPAN|TIME", help=told)(command)
    return click.option("--reason", default="", metavar="TEXT", help="Why, for the next operator.")(command)


def _release_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--release", is_flag=True, help="End it now. Takes neither --reason nor --until.")(command)


@click.command(short_help="Keep new jobs off nodes for a while.")
@click.argument("nodes", nargs=-1, required=True, metavar="NODE...")
@_ending
@output_option("text", "json")
@server_option
def cordon(nodes: tuple[str, ...], reason: str, until: str, output: str, server: str | None) -> None:
    """Keep new jobs off every NODE for a while; what runs there stays. `quorate uncordon` ends it before.

    For longer than a while, write it into the NodePool (`cordoned`): the cordon by hand is over once Git says the same.
    """
    _require_reason(reason, until, release=False)
    with api_client(server) as client:
        _print(((node, client.by_hand.cordon(node, reason, until)) for node in nodes), output)


@click.command(short_help="End the cordon of nodes.")
@click.argument("nodes", nargs=-1, required=True, metavar="NODE...")
@output_option("text", "json")
@server_option
def uncordon(nodes: tuple[str, ...], output: str, server: str | None) -> None:
    """End what `quorate cordon` has put in force on every NODE. What Git says of a node stays."""
    with api_client(server) as client:
        _print(((node, client.by_hand.uncordon(node)) for node in nodes), output)


@click.command(short_help="Keep jobs, or a whole queue, from starting.")
@click.argument("jobs", nargs=-1, metavar="JOB...", shell_complete=job_names)
@click.option(
    "--queue",
    "queues",
    multiple=True,
    metavar="QUEUE",
    shell_complete=queue_names,
    help="Every job of it and of those below it. Repeatable.",
)
@_ending
@_release_option
@output_option("text", "json")
@server_option
def hold(
    jobs: tuple[str, ...],
    queues: tuple[str, ...],
    reason: str,
    until: str,
    release: bool,
    output: str,
    server: str | None,
) -> None:
    """Let every JOB, and every job of each QUEUE, not begin for a while; what runs stays, and does not begin again.

    The name of an array or pipeline stands for all of its jobs that have not ended. A queue is named by an option, so that a slip
    of the finger in the name of a job never holds a queue.
    """
    if not jobs and not queues:
        raise click.UsageError("name a job, or a queue with --queue.")
    _require_reason(reason, until, release=release)
    with api_client(server) as client:
        names = _live_jobs(client, jobs)
        held = _deeds(client, names, release, reason, until, (ByHand.hold, ByHand.release))
        of_queues = _deeds(client, queues, release, reason, until, (ByHand.hold_queue, ByHand.release_queue))
        _print((*held, *of_queues), output)


@click.command(short_help="Start jobs before the others of their queue.")
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...", shell_complete=job_names)
@_ending
@_release_option
@output_option("text", "json")
@server_option
def boost(jobs: tuple[str, ...], reason: str, until: str, release: bool, output: str, server: str | None) -> None:
    """Let every JOB start before the others of its queue, SLO class and rank that wait.

    It is no way around quota, and no job is evicted for it that would not be without. The name of an array or pipeline stands for
    all of its jobs that have not ended.
    """
    _require_reason(reason, until, release=release)
    with api_client(server) as client:
        names = _live_jobs(client, jobs)
        _print(_deeds(client, names, release, reason, until, (ByHand.boost, ByHand.release_boost)), output)


def _require_reason(reason: str, until: str, *, release: bool) -> None:
    """Raises UsageError."""
    if release and (reason or until):
        raise click.UsageError("--release takes neither --reason nor --until.")
    if not release and not reason.strip():
        raise click.UsageError("say why: --reason TEXT.")


def _live_jobs(client: Client, names: Iterable[str]) -> list[str]:
    """The jobs that these names stand for; an array or pipeline without those that have ended.

    Raises ApiError, CommandFailedError.
    """
    found: list[str] = []
    for of in [find(client, name) for name in names]:
        live = [of.name] if isinstance(of, JobView) else [job.name for job in of.jobs if job.state not in TERMINAL]
        if not live:
            raise CommandFailedError("all of its jobs have ended", place=of.name)
        found += live
    return found


def _deeds(
    client: Client, names: Iterable[str], release: bool, reason: str, until: str, ways: tuple[Begin, Release]
) -> tuple[Deed, ...]:
    begin, end = ways
    return tuple(
        (name, end(client.by_hand, name) if release else begin(client.by_hand, name, reason, until)) for name in names
    )


def _print(deeds: Iterable[Deed], output: str) -> None:
    """One line each as soon as it is done, or one document at the end."""
    if output == "json":
        print_json(InterventionList(items=tuple(done for _, done in deeds if done is not None)))
        return
    for line in _lines(deeds):
        click.echo(printable(line))


def _lines(deeds: Iterable[Deed]) -> Iterator[str]:
    for name, done in deeds:
        if done is None:
            yield f"{name}: nothing was in force by hand"
        elif done.ended_at is not None:
            yield f"{name}: the {done.kind} by {done.author} is over: {done.reason}"
        else:
            yield f"{name}: {done.kind} until {local(done.until)}: {done.reason}"
