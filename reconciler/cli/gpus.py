"""`quorate gpus`: what GPUs do and which jobs hold them, and how much of them is allocated, and of that active."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Literal

import click

from reconciler.api.gpu_payloads import GpuList, GpuView
from reconciler.cli.connection import api_client, server_option
from reconciler.cli.output import output_option, print_json
from reconciler.cli.phrases import active_words, short_list
from reconciler.cli.tables import print_table
from reconciler.cli.times import span
from reconciler.control.model_flops import ReportedWork, WorkLine, together
from reconciler.control.use_summary import GpuUtilisation
from reconciler.model.clock import SystemClock
from reconciler.model.gpu_use import MINUTE, UseSpread
from solver.model.quantities import Instant

By = Literal["gpu", "type", "queue", "class"]

_HEADINGS = ("GPU", "GPU TYPE", "NODE", "HELD BY", "ACTIVE", "TENSOR", "DRAM", "MEMORY", "SOURCE", "AGE")
_NUMBERS = ("ACTIVE", "TENSOR", "DRAM", "MEMORY", "AGE")
_SUMS = ("GPU TYPE", "HEALTHY", "ALLOCATED", "ALLOCATED/HEALTHY", "ACTIVE/ALLOCATED")
UNKNOWN = "-"


@click.command(short_help="Show what the GPUs do, and which jobs hold them.")
@click.option(
    "--by",
    type=click.Choice(["gpu", "type", "queue", "class"]),
    default="gpu",
    show_default=True,
    help="A line for each GPU, or for each GPU type of the cluster, of its queues or of its priority classes.",
)
@click.option("--node", default="", help="Only GPUs of this node.")
@click.option("--queue", default="", help="Only GPUs that jobs of this queue hold.")
@click.option("--job", default="", help="Only GPUs that this job holds.")
@click.option("--gpu-type", default="", help="Only GPUs of this type.")
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=1_000,
    show_default=True,
    help="Show no more GPUs than this.",
)
@output_option("text", "json")
@server_option
def gpus(by: By, node: str, queue: str, job: str, gpu_type: str, limit: int, output: str, server: str | None) -> None:
    """Show each GPU: which jobs hold it, and what it did in the newest minute of which that is known, AGE ago.

    ACTIVE is the share of time in which its SMs did something (SOURCE gpm), or in which any kernel ran (utilisation). What is not
    measured is `-`. `--by` adds up: GPUs allocated of those that are healthy, and how active the allocated ones are that are
    measured, and MFU, of so many GPUs, where jobs report their operations.
    """
    chosen = {"node": node, "queue": queue, "job": job, "gpuType": gpu_type}
    with api_client(server) as client:
        found = client.gpus(limit, **{name: value for name, value in chosen.items() if value})
    if output == "json":
        print_json(found)
    elif by == "gpu":
        _print(found, limit)
    else:
        _print_sums(by, found)


def _print(found: GpuList, limit: int) -> None:
    if not found.items:
        click.echo("no such GPUs")
        return
    now = SystemClock().now()
    print_table(_HEADINGS, (row_of(gpu, now) for gpu in found.items), right=_NUMBERS)
    if found.next:
        click.echo(
            f"and more than these {limit}: --limit, --node, --queue, --job, --gpu-type and --by say which to show"
        )


def row_of(gpu: GpuView, now: Instant) -> list[str]:
    """The cells of one GPU."""
    use = gpu.use
    holders = short_list(gpu.jobs) if gpu.jobs else "(held)" if gpu.held else ""
    return [
        gpu.gpu if gpu.healthy else f"{gpu.gpu} (not healthy)",
        gpu.gpu_type,
        gpu.node,
        holders,
        _percent(use.active if use else None),
        _percent(use.tensor if use else None),
        _percent(use.dram if use else None),
        _percent(use.memory if use else None),
        use.source if use else UNKNOWN,
        # A minute is known when it is over. Clocks differ a little.
        span(max(0, now - gpu.minute - MINUTE)) if gpu.minute is not None else UNKNOWN,
    ]


def _percent(spread: UseSpread | None) -> str:
    return UNKNOWN if spread is None else f"{spread.mean:.0f}%"


def _print_sums(by: Literal["type", "queue", "class"], found: GpuList) -> None:
    known = _mfu_of(by, found.work)
    headings: tuple[str, ...]
    if by == "type":
        headings, cells = _SUMS, [[*sum_of(line), *_mfu(known, "", line.gpu_type)] for line in found.types]
    else:
        headings = (by.upper(), "GPU TYPE", "ALLOCATED", "ACTIVE/ALLOCATED")
        some = found.queues if by == "queue" else found.classes
        cells = [
            [*_named_row(one.name, line), *_mfu(known, one.name, line.gpu_type)] for one in some for line in one.lines
        ]
    headings = (*headings, *(("MFU",) if known else ()))
    print_table(headings, cells, right=headings[1 if by == "type" else 2 :])


def _mfu_of(by: Literal["type", "queue", "class"], lines: Iterable[WorkLine]) -> dict[tuple[str, str], ReportedWork]:
    """Where one is known. The name is "" by type."""
    found = defaultdict[tuple[str, str], list[ReportedWork]](list)
    for line in lines:
        name = {"type": "", "queue": line.queue, "class": line.priority_class}[by]
        found[name, line.gpu_type].append(line.work)
    return {key: work for key, some in found.items() if (work := together(some)) is not None}


def _mfu(known: Mapping[tuple[str, str], ReportedWork], name: str, gpu_type: str) -> list[str]:
    """A cell, if any line has one."""
    if not known:
        return []
    work = known.get((name, gpu_type))
    return [UNKNOWN if work is None or work.mfu is None else f"{100 * work.mfu:.0f}% of {work.gpus}"]


def sum_of(line: GpuUtilisation) -> list[str]:
    """The cells of a GPU type."""
    healthy = line.healthy or 0
    allocated = f"{100 * line.allocated / healthy:.0f}%" if healthy else ""
    return [line.gpu_type, str(healthy), str(line.allocated), allocated, active_words(line)]


def _named_row(name: str, line: GpuUtilisation) -> list[str]:
    return [name or "(default)", line.gpu_type, str(line.allocated), active_words(line)]
