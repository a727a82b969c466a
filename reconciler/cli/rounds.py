"""`quorate rounds`: the rounds that were held, or the plan of one in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import click
import msgspec

from reconciler.analysis.reports.step_words import step_line
from reconciler.cli.connection import api_client, server_option
from reconciler.cli.output import output_option, print_json, printable
from reconciler.cli.phrases import short_revision
from reconciler.cli.solve import plan_lines
from reconciler.cli.tables import print_fields, print_table
from reconciler.cli.times import local
from reconciler.protocols.rounds import RoundRecord, RoundSummary
from solver.model.document import API_VERSION

_HEADINGS = ("ROUND", "TIME", "POLICY", "STARTS", "WAITS", "NEVER", "DECIDED BY", "MS")


class RoundDocument(RoundRecord, frozen=True, omit_defaults=False):
    """What `-o json` prints of one round: all that is needed to solve it again."""

    api_version: Literal["quorate.dev/v1"] = API_VERSION
    kind: Literal["Round"] = "Round"


@click.command(short_help="List rounds, or show one.")
@click.argument("number", required=False, type=click.IntRange(min=1))
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="How many of the newest.")
@output_option("text", "json")
@server_option
def rounds(number: int | None, limit: int, output: str, server: str | None) -> None:
    """List the newest rounds, or show the plan of round NUMBER in words. A round that says nothing new is not kept."""
    with api_client(server) as client:
        found = client.rounds(limit) if number is None else client.round(number)
    if isinstance(found, RoundRecord):
        if output == "json":
            print_json(RoundDocument(**msgspec.structs.asdict(found)))
        else:
            print_fields(_fields(found))
            click.echo()
            lines = [printable(step_line(step)) for step in found.narrow[-1].steps] if found.narrow else None
            click.echo("\n".join(lines or plan_lines(found.plan)))
    elif output == "json":
        print_json(found)
    else:
        print_table(
            _HEADINGS, map(_row, found.items), right=("ROUND", "STARTS", "WAITS", "NEVER", "MS"), spare=("MS", "NEVER")
        )


def _row(line: RoundSummary) -> list[str]:
    return [
        str(line.number),
        local(line.time),
        short_revision(line.revision),
        str(line.starts),
        str(line.waits),
        str(line.inadmissible),
        line.stage,
        f"{line.duration_ms:.0f}",
    ]


def _fields(record: RoundRecord) -> Iterator[tuple[str, str]]:
    last = record.narrow[-1] if record.narrow else record
    yield "Round", str(record.number)
    yield "Time", local(last.time)
    yield "Policy", record.revision
    if record.narrow:
        freed = ", ".join(record.narrow[-1].freed_by)
        since = f" and {freed} gave back" if freed else ""
        yield "Decided on", f"what round {record.narrow[-1].base} left{since}, of these jobs alone"
    else:
        yield "Plan", record.plan.digest
    yield "Took", ", ".join(f"{phase} {took:.0f} ms" for phase, took in last.phase_ms.items())
