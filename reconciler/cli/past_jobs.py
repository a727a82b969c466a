"""`quorate history jobs`: what became of jobs, and what they had, a line each."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Final
from zoneinfo import ZoneInfo

import click

from reconciler.analysis.showback.statement import ShowbackRow
from reconciler.api.payloads import JobView
from reconciler.api.showback_payloads import NOT_ON_RECORD
from reconciler.cli.completion import queue_names
from reconciler.cli.connection import api_client, server_option
from reconciler.cli.get import STATES
from reconciler.cli.output import csv_lines, output_option, print_json, print_warning
from reconciler.cli.phrases import gpu_hours
from reconciler.cli.status_line import busy
from reconciler.cli.tables import print_table
from reconciler.cli.times import local, moment_of, zone_of
from reconciler.client import ApiError, Client
from reconciler.model.job_record import JobState
from solver.model.document import Document
from solver.model.quantities import Instant, MilliGpu
from solver.model.workload import JobName, QueueName

_SPARE: Final = ("CLASS", "LOST", "WAITED", "SUBMITTED")


class PastJobLine(Document, frozen=True, omit_defaults=False):
    """A job that was there in the window. GPU-seconds are those of the window: held (`allocated`), `lost` to evictions and failures
    since the last checkpoint, and `waited` for. null: the caller may not see it, or it is not on record.
    """

    name: JobName
    user: str
    queue: QueueName
    priority_class: str
    state: JobState
    gpus: MilliGpu
    attempts: int
    submitted_at: Instant
    ended_at: Instant | None
    exit_code: int | None
    message: str
    allocated: Decimal | None
    lost: Decimal | None
    waited: Decimal | None


_COLUMNS: Final = tuple(PastJobLine.__struct_fields__)


@click.command("jobs", short_help="List what became of jobs, and what they had.")
@click.option(
    "--from", "since", default="7d", show_default=True, metavar="TIME", help="A span before now, a date or a time."
)
@click.option("--to", default="", metavar="TIME", help="As --from; a date is its begin. Now, unless stated.")
@click.option("--me", is_flag=True, help="Only jobs of the user whose token this is.")
@click.option("-u", "--user", help="Only jobs of this user.")
@click.option("--queue", shell_complete=queue_names, help="Only jobs of this queue and of those below it.")
@click.option(
    "--state", "states", multiple=True, type=click.Choice(STATES), help="Only jobs in this state; repeatable."
)
@click.option(
    "--time-zone", metavar="ZONE", help="Of dates, and of times that are shown; this machine's unless stated."
)
@output_option("table", "json", "csv")
@server_option
def past_jobs(
    since: str,
    to: str,
    me: bool,
    user: str | None,
    queue: str | None,
    states: tuple[JobState, ...],
    time_zone: str | None,
    output: str,
    server: str | None,
) -> None:
    """List the jobs that were there between two times, live or ended, newest first: how each ended, and the GPU-hours that it held.

    GPU-HOURS, LOST and WAITED count within the window. LOST is work since the last checkpoint that evictions and failures cost;
    WAITED is what it asked for while it held nothing. `-o csv` and `-o json` have seconds, exactly.
    """
    zone = zone_of(time_zone)
    begin, end = moment_of(since, zone), moment_of(to, zone)
    with api_client(server) as client, busy("reading what is on record"):
        by = client.who_am_i().user if me else user or ""
        jobs = tuple(client.all_jobs(queue=queue or "", user=by, states=states, since=begin, to=end))
        had = _had(client, begin, end)
    lines = tuple(_line(job, had.get(job.name)) for job in jobs)
    match output:
        case "json":
            print_json({"apiVersion": "quorate.dev/v1", "kind": "PastJobs", "items": lines})
        case "csv":
            rows = ([getattr(line, name) for name in _COLUMNS] for line in lines)
            click.echo("\n".join(csv_lines(_COLUMNS, rows)))
        case _:
            _print(lines, zone)


def _had(client: Client, begin: str, end: str) -> dict[str, ShowbackRow]:
    """What jobs had in the window, by name; where that is not on record, nothing, which is then told."""
    try:
        return {row.name: row for row in client.past.showback("job", begin, end).rows if not row.redacted}
    except ApiError as error:
        if error.problem.code not in (NOT_ON_RECORD, "no-placements"):
            raise
        print_warning(f"what jobs held is not known: {error.problem.detail}")
        return {}


def _line(job: JobView, had: ShowbackRow | None) -> PastJobLine:
    ended = job.outcome
    return PastJobLine(
        job.name,
        job.user,
        job.spec.queue,
        job.spec.priority_class,
        job.state,
        job.spec.gpus,
        ended.attempt if ended else job.attempt,
        job.submitted_at,
        ended.at if ended else None,
        ended.exit_code if ended else None,
        ended.message if ended else "",
        had.allocated if had else None,
        had.lost_to_evictions + had.lost_to_failures if had else None,
        had.waiting if had else None,
    )


def _print(lines: Sequence[PastJobLine], zone: ZoneInfo | None) -> None:
    if not lines:
        click.echo("no jobs")
        return
    headings = ("JOB", "USER", "QUEUE", "CLASS", "STATE", "GPUS", "GPU-HOURS", "LOST", "WAITED", "ENDED", "SUBMITTED")
    print_table(
        headings, [_row(line, zone) for line in lines], right=("GPUS", "GPU-HOURS", "LOST", "WAITED"), spare=_SPARE
    )


def _row(line: PastJobLine, zone: ZoneInfo | None) -> list[str]:
    code = f" ({line.exit_code})" if line.exit_code else ""
    had = ("?" if each is None else gpu_hours(each) for each in (line.allocated, line.lost, line.waited))
    ended = local(line.ended_at, zone) if line.ended_at is not None else ""
    whose = line.user, line.queue, line.priority_class or "(default)"
    return [line.name, *whose, line.state + code, str(line.gpus), *had, ended, local(line.submitted_at, zone)]
