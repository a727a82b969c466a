"""`quorate top`: what runs, how far it is and what it uses, again and again on a terminal."""

from __future__ import annotations

import sys

import click

from reconciler.api.top import Top, TopLine
from reconciler.cli.connection import api_client, server_option
from reconciler.cli.output import output_option, print_json
from reconciler.cli.tables import Listing, show, show_again
from reconciler.cli.times import span
from reconciler.model.clock import SystemClock
from reconciler.supervisor.memory import written
from solver.model.quantities import Instant

_HEADINGS = (
    "NAME",
    "QUEUE",
    "STATE",
    "TASKS",
    "GPUS",
    "RUNNING FOR",
    "STEP",
    "STEPS/S",
    "MEMORY",
    "ACTIVE",
    "MFU",
    "IDLE FOR",
)
_NUMBERS = ("TASKS", "GPUS", "RUNNING FOR", "STEP", "STEPS/S", "MEMORY", "ACTIVE", "MFU", "IDLE FOR")
_SPARE = ("QUEUE", "STEPS/S", "RUNNING FOR", "GPUS", "MEMORY", "MFU")


@click.command(short_help="Show what runs, how far it is and what it uses.")
@output_option("text", "json")
@server_option
def top(output: str, server: str | None) -> None:
    """Show every job that holds devices: its tasks that run, its step and steps a second, the memory of its fullest task.

    ACTIVE is how active its GPUs are, as far as that is measured; MFU is known where it reports its operations.

    On a terminal it is shown anew every 2 seconds until it is interrupted; else once.
    """
    with api_client(server) as client:
        if output == "json":
            print_json(client.top())
        elif sys.stdout.isatty():
            show_again(lambda: _parts(client.top()))
        else:
            show(_parts(client.top()))


def _parts(found: Top) -> tuple[str | Listing]:
    now = SystemClock().now()
    rows = [row_of(line, now) for line in found.items]
    return (Listing(_HEADINGS, rows, right=_NUMBERS, spare=_SPARE) if rows else "nothing runs",)


def row_of(line: TopLine, now: Instant) -> list[str]:
    """The cells of one job; what is not known is left empty."""
    progress, memory = line.progress, line.memory
    return [
        line.name,
        line.queue,
        line.state,
        f"{line.running}/{line.tasks}",
        str(line.gpus),
        span(now - line.since) if line.since is not None else "",
        str(progress.step) if progress else "",
        f"{progress.rate:.3g}" if progress and progress.rate else "",
        f"{written(memory.peak)}/{written(memory.limit) if memory.limit else '-'}" if memory else "",
        f"{line.active:.0f}%" if line.active is not None else "",
        f"{100 * line.work.mfu:.0f}%" if line.work and line.work.mfu is not None else "",
        span(now - line.active_at) if line.active_at is not None else "",
    ]
