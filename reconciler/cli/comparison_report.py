"""What rounds would have done beside another scheduler, in words."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Final

import click

from reconciler.cli.tables import print_fields, print_table
from reconciler.cli.times import local
from reconciler.model.comparison import ComparedJob, ObservedComparison
from solver.model.quantities import Duration
from solver.plan.reason import count

_SHOWN_MAX: Final = 10


def print_comparison(found: ObservedComparison) -> None:
    """Figures, the starts that differ most, evictions, and what can't be known."""
    click.echo(f"\nBeside Slurm, from {local(found.since)} to {local(found.until)}:")
    print_fields(_fields(found))
    differing = [one for one in found.starts if one.start(found.look_ms) in ("earlier", "later")]
    differing.sort(key=lambda one: (-one.ahead_ms, -one.gpus, one.job))
    if differing:
        click.echo()
        headings = "JOB", "QUEUE", "GPUS", "SLURM STARTED IT", "A ROUND WOULD HAVE"
        print_table(headings, (_start(one) for one in differing[:_SHOWN_MAX]), right=("GPUS",))
        _say_more(len(differing))
    if found.evictions:
        click.echo()
        rows = (
            (one.job, one.queue, f"{one.gpus:g}", local(one.at), one.beneficiary)
            for one in found.evictions[:_SHOWN_MAX]
        )
        print_table(("WOULD EVICT", "QUEUE", "GPUS", "AT", "FOR"), rows, right=("GPUS",))
        _say_more(len(found.evictions))
    if found.doubts:
        click.echo("\nNot known, or not followed:")
    for doubt in found.doubts:
        click.echo(f"  {doubt}")
    click.echo(
        "\nEach round begins from what Slurm made of the cluster. A day under Quorate: quorate simulate --as-it-was."
    )


def _fields(found: ObservedComparison) -> Iterator[tuple[str, str]]:
    failed = f", and {found.failed} that failed ({found.failure})" if found.failed else ""
    yield "Looks", f"{found.looks}, {Duration(found.look_ms)} apart{failed}"
    counts, use = found.counts, found.use
    ahead = [one.ahead_ms for one in found.starts if one.start(found.look_ms) == "earlier"]
    by = f", by {Duration(round(median(ahead)))} in the median" if ahead else ""
    yield "Would start earlier", f"{count(counts.earlier, 'job')}{by}"
    yield "As soon as Slurm", count(counts.same, "job")
    yield "Would wait longer", count(counts.later, "job")
    if counts.unseen:
        yield "Not compared", f"{count(counts.unseen, 'job')} that began between two looks"
    yield "Wait, would run", count(counts.would_start, "job")
    yield "Would evict", f"{count(counts.evicted, 'job')} (Slurm preempted {counts.really_evicted})"
    if use.gpu_ms:
        slurm, planned = use.used_ms / use.gpu_ms, use.planned_ms / use.gpu_ms
        yield "GPUs in use", f"{slurm:.1%} by Slurm, {planned:.1%} after each round"
        gap = f", {Duration(use.unmeasured_ms)} not seen" if use.unmeasured_ms else ""
        yield "Measured for", f"{Duration(use.measured_ms)}{gap}"
    else:
        yield "GPUs in use", "not measured yet"


def _start(one: ComparedJob) -> tuple[str, ...]:
    began = local(one.started_at) if one.started_at is not None else ""
    if one.would_start_at is not None:
        would = f"started it {Duration(one.ahead_ms)} earlier"
    else:
        would = f"let it wait: {one.waits_for}" if one.waits_for else "let it wait"
    return one.job, one.queue, f"{one.gpus:g}", began, would


def _say_more(number: int) -> None:
    if number > _SHOWN_MAX:
        click.echo(f"... and {number - _SHOWN_MAX} more: -o json")
