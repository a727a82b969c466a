"""`quorate why`: why a job waits, where it runs, or how it ended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

import click

from reconciler.api.group_payloads import GroupView
from reconciler.api.payloads import JobView, Why
from reconciler.cli.completion import job_names
from reconciler.cli.connection import api_client, server_option
from reconciler.cli.job_names import counts_of, find
from reconciler.cli.output import output_option, print_json, printable
from reconciler.cli.phrases import state_line
from reconciler.model.clock import SystemClock
from reconciler.model.job_record import WAITING, JobState
from solver.model.document import API_VERSION, Document
from solver.model.quantities import Instant
from solver.model.workload import JobName
from solver.plan.plan import Inadmissible
from solver.plan.reason import count

_WORST_FIRST: Final[tuple[JobState, ...]] = (
    "failed", "retrying", "queued", "reserved", "suspended", "evicting", "stopping", "checkpointing", "starting", "running",
    "cancelled", "succeeded",
)  # fmt: skip
_WELL: Final[frozenset[JobState]] = frozenset({"succeeded"})


@click.command(short_help="Say why a job waits, or how it ended.")
@click.argument("job", shell_complete=job_names)
@output_option("text", "json")
@server_option
def why(job: str, output: str, server: str | None) -> None:
    """Say why JOB waits: every constraint that binds it, the most telling first, as the newest round found them.

    What would help comes last.

    Of a job that holds devices it says where; of one that has ended how, with the last lines of its log if it failed. Of an array
    or pipeline it says that of the first job in each state; those that went well are counted.
    """
    with api_client(server) as client:
        found = find(client, job)
        first = first_of_states(found) if isinstance(found, GroupView) else {found.name: ""}
        answers = [(client.job(name), client.why(name), which) for name, which in first.items()]
    if output == "json":
        said = tuple(answer for _, answer, _ in answers)
        print_json(WhyList(items=said) if isinstance(found, GroupView) else said[0])
        return
    if isinstance(found, GroupView):
        click.echo(f"{found.name}: {found.kind} of {count(len(found.jobs), 'job')}: {counts_of(found)}")
    for view, answer, which in answers:
        if isinstance(found, GroupView):
            click.echo(f"\n{which}" if which else "")
        for line in why_lines(view, answer, SystemClock().now()):
            click.echo(printable(line))


class WhyList(Document, frozen=True, omit_defaults=False):
    """What `-o json` prints of an array or pipeline: of the first job in each state."""

    items: tuple[Why, ...]
    api_version: Literal["quorate.dev/v1"] = API_VERSION
    kind: Literal["WhyList"] = "WhyList"


def first_of_states(group: GroupView) -> dict[JobName, str]:
    """The first job in each state that asks for a reason, the worst first, and for how many it stands, where it does."""
    found: dict[JobName, str] = {}
    for state in sorted(set(group.counts) - _WELL, key=_WORST_FIRST.index):
        first = next(job.name for job in group.jobs if job.state == state)
        number = group.counts[state]
        found[first] = f"The first of {number} that are {state}:" if number > 1 else ""
    return found


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
