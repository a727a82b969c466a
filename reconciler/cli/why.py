"""`quorate why`: why a job waits, where it runs, or how it ended."""

from __future__ import annotations

from collections.abc import Iterator

import click

from reconciler.api.payloads import JobView, Why
from reconciler.cli.completion import job_names
from reconciler.cli.connection import api_client, server_option
from reconciler.cli.output import output_option, print_json, printable
from reconciler.cli.phrases import state_line
from reconciler.model.clock import SystemClock
from reconciler.model.job_record import WAITING
from solver.model.quantities import Instant
from solver.plan.plan import Inadmissible


@click.command(short_help="Say why a job waits, or how it ended.")
@click.argument("job", shell_complete=job_names)
@output_option("text", "json")
@server_option
def why(job: str, output: str, server: str | None) -> None:
    """Say why JOB waits: every constraint that binds it, the most telling first, as the newest round found them.

    What would help comes last.

    Of a job that holds devices it says where; of one that has ended how, with the last lines of its log if it failed.
    """
    with api_client(server) as client:
        view, answer = client.job(job), client.why(job)
    if output == "json":
        print_json(answer)
    else:
        for line in why_lines(view, answer, SystemClock().now()):
            click.echo(printable(line))


def why_lines(job: JobView, answer: Why, now: Instant) -> Iterator[str]:
    """What to print of one job."""
    yield f"{job.name}: {state_line(job, now)}"
    if isinstance(answer.verdict, Inadmissible):
        yield "It can't run under this policy on this cluster, however long it waits:"
    listed = job.state in WAITING and len(answer.words) > 1
    for word in answer.words:
        first, *more = word.split("\n")
        yield f"  - {first}" if listed else f"  {first}"
        yield from (f"  | {line}" for line in more)
    if answer.would_help:
        label = "" if isinstance(answer.verdict, Inadmissible) else "Would help: "
        yield f"  {label}{'; '.join(answer.would_help)}"
