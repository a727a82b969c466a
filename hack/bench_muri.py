"""How long jobs of the Muri traces take until they are done, beside what was published: `python -m hack.bench_muri`.

Every round is a full `solve` without the integer program. Starting costs the restart of the policy, everything else nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from math import ceil
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from hack.muri import nodes, policy, read_jobs
from solver.model.quantities import Duration, Instant
from solver.simulation.replay import Replay
from solver.simulation.trace import Run

CADENCE = Duration(1000)

PUBLISHED: dict[str, dict[str, tuple[int, int, int]]] = {
    "trace1": {
        "SRTF": (1_370_603, 26_045_466, 16_647_148),
        "SRSF": (980_141, 26_065_759, 15_529_913),
        "Tiresias-L": (3_330_371, 23_556_410, 14_739_852),
        "Themis": (1_823_179, 24_658_269, 17_159_064),
    },
    "trace3": {
        "SRTF": (193_082, 8_174_135, 4_538_891),
        "SRSF": (185_022, 8_174_135, 4_189_699),
        "Tiresias-L": (347_213, 8_174_226, 4_983_397),
        "Themis": (397_059, 8_172_105, 2_967_333),
    },
}
"""Average time to completion, makespan, and its 99th percentile, in seconds; SRTF and SRSF know the durations."""


class Result(msgspec.Struct, frozen=True):
    """What a replay measured, in seconds; `longest_wait_s`: the longest that a job had nothing in one stretch."""

    trace: str
    policy: str
    avg_jct_s: float
    makespan_s: float
    p99_jct_s: float
    longest_wait_s: float


def measure(trace: Path, name: str, progress: Callable[[int, int], None]) -> Result:
    """Replay a trace to its end. Raises OSError, KeyError, ValueError where the file is not one."""
    jobs = read_jobs(trace, known=name == "srtf")
    replay = Replay(nodes(), policy(name), None, CADENCE)
    for decided in replay.rounds(jobs, Instant(2**62)):
        progress(len(replay.runs) - len(decided.snapshot.jobs), len(jobs))
    runs = list(replay.runs.values())
    took = sorted(_took_ms(run) for run in runs)
    first, last = min(run.submitted_at for run in runs), max(run.submitted_at + _took_ms(run) for run in runs)
    return Result(
        trace.stem,
        name,
        round(sum(took) / len(took) / 1000, 1),
        (last - first) / 1000,
        took[ceil(0.99 * len(took)) - 1] / 1000,
        max(run.longest_wait_ms for run in runs) / 1000,
    )


def _took_ms(run: Run) -> int:
    if run.ended_at is None:
        raise ValueError(f"{run.job} never ended: it asks for more than the cluster has")
    return run.ended_at - run.submitted_at


@click.command()
@click.option(
    "--trace",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The trace, a CSV file.",
)
@click.option(
    "--policy",
    "name",
    default="default",
    show_default=True,
    type=click.Choice(["srtf", "default"]),
    help="Least remaining time first, or the Gittins index of durations that nobody knows.",
)
@click.option("-o", "--output", default="text", type=click.Choice(["text", "json"]), help="How to print the result.")
def main(trace: Path, name: str, output: str) -> None:
    """Replay a Muri trace on 8 nodes of 8 GPUs and say how long its jobs took."""
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(f"{trace.stem} {name}", total=None)
        try:
            result = measure(trace, name, lambda done, of: bar.update(task, completed=done, total=of))
        except (OSError, KeyError, ValueError) as error:
            raise click.ClickException(f"{trace} is no such trace: {error}. See docs/benchmarks.md.") from error
    if output == "json":
        click.echo(json.dumps(msgspec.to_builtins(result), indent=2))
    else:
        _print(result)


def _print(result: Result) -> None:
    table = Table(title=f"{result.trace}, seconds")
    for heading in ("POLICY", "AVERAGE JCT", "MAKESPAN", "P99 JCT", "LONGEST WAIT"):
        table.add_column(heading, justify="left" if heading == "POLICY" else "right")
    _row(table, result.policy, (result.avg_jct_s, result.makespan_s, result.p99_jct_s, result.longest_wait_s))
    for known, figures in PUBLISHED.get(result.trace, {}).items():
        _row(table, f"{known}, published", figures)
    Console().print(table)


def _row(table: Table, name: str, figures: Sequence[float]) -> None:
    table.add_row(name, *(f"{figure:,.0f}" for figure in figures))


if __name__ == "__main__":
    main()
