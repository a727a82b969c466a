"""How long rounds take, from snapshot to checked plan with devices: `python -m hack.bench_round --case 4k -o json`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click
import msgspec
from rich import box
from rich.console import Console
from rich.progress import Progress, track
from rich.table import Column, Table

from hack.rounds.cases import CASES, measure, of_snapshot, smaller
from hack.rounds.curve import Along, KeptPointsError, Point, PointFailedError, fits, measured, name_of, series
from hack.rounds.plots import draw
from hack.rounds.timing import Figures
from reconciler.documents.files import read_folder
from reconciler.documents.repository import read_repository
from reconciler.documents.snapshot import read_snapshot
from reconciler.model.problem import InvalidDocumentsError

PLOTS = Path(__file__).parents[1] / "docs" / "plots"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--case", "wanted", type=click.Choice([*CASES, "all"]), default="4k", show_default=True)
@click.option(
    "--smaller", "divisor", type=click.IntRange(min=1), default=1, show_default=True, help="Divide sizes by so much."
)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option(
    "--program-s",
    type=click.FloatRange(min=0),
    default=10,
    show_default=True,
    help="Seconds that the integer program may take in a round, as a control plane lets it; 0: there is none, and the greedy "
    "answer stands.",
)
@click.option(
    "--pace-s",
    type=click.FloatRange(min=0, min_open=True),
    help="Seconds that a round counts as for jobs that come meanwhile: the same come in each run.  [default: as it took]",
)
@click.option(
    "--snapshot", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="A snapshot of your own."
)
@click.option("--policy", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Its policy repository.")
@click.option(
    "--curve", is_flag=True, help="How time and memory grow with GPUs and with what waits, instead of a case."
)
@click.option(
    "--plots",
    type=click.Path(file_okay=False, path_type=Path),
    default=PLOTS,
    help="Where the curve is drawn, and its points are kept in curve.json; docs/plots.",
)
@click.option("--afresh", is_flag=True, help="Measure points of the curve that are kept, too.")
@click.option(
    "--point-s",
    type=click.FloatRange(min=1),
    default=600,
    show_default=True,
    help="Seconds after which a point of the curve is given up.",
)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def main(
    wanted: str,
    divisor: int,
    seed: int,
    program_s: float,
    pace_s: float | None,
    snapshot: Path | None,
    policy: Path | None,
    curve: bool,
    plots: Path,
    afresh: bool,
    point_s: float,
    output: str,
) -> None:
    """Time rounds of large seeded clusters, or one of your own."""
    limit_s = program_s or None
    if (snapshot is None) != (policy is None):
        raise click.UsageError("--snapshot and --policy belong together: a round needs both.")
    if curve:
        _curve(series(seed, limit_s, divisor), plots, afresh, point_s, output)
        return
    if snapshot and policy:
        found = [_of_file(snapshot, policy, seed, limit_s)]
    else:
        names = list(CASES) if wanted == "all" else [wanted]
        console = Console(stderr=True)
        found = [
            measure(name, replace(smaller(CASES[name], divisor), pace_s=pace_s), seed, limit_s)
            for name in track(names, "Deciding rounds", console=console, disable=not console.is_terminal)
        ]
    if output == "json":
        click.echo(json.dumps([msgspec.to_builtins(known) for known in found], indent=2))
    else:
        _show(found)


def _of_file(snapshot: Path, policy: Path, seed: int, limit_s: float | None) -> Figures:
    try:
        compiled = read_repository(read_folder(policy)).checked()
        return of_snapshot(read_snapshot(snapshot.read_bytes(), str(snapshot)), compiled.policy, seed, limit_s)
    except InvalidDocumentsError as error:
        raise click.ClickException(str(error)) from error


def _curve(along: Along, plots: Path, afresh: bool, point_s: float, output: str) -> None:
    """Measure what is missing, draw all, and say it."""
    points = list(dict.fromkeys(point for axis in along.values() for point in axis))
    try:
        found = measured(_watched(points), plots / "curve.json", point_s, afresh=afresh)
    except (PointFailedError, KeptPointsError) as error:
        raise click.ClickException(str(error)) from error
    exponents = fits(found, along)
    drawn = [str(file) for file in draw(plots, found, along)]
    if output == "json":
        answer = {
            "points": [each.figures for each in found if each.figures],
            "not_reached": [each.point for each in found if not each.figures],
            "fits": exponents,
            "plots": drawn,
        }
        click.echo(json.dumps(msgspec.to_builtins(answer), indent=2))
        return
    _show([each.figures for each in found if each.figures])
    for each in found:
        if not each.figures:
            click.echo(f"{name_of(each.point)}: not done in {point_s:g} s")
    for fit in exponents:
        power = "too few points" if fit.exponent is None else f"power {fit.exponent:g} of {fit.over}, by {fit.points}"
        click.echo(f"{fit.figure}: {power}")


def _watched(points: list[Point]) -> Iterator[Point]:
    """The points one after the other, with a bar that says which it is."""
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=len(points))
        for point in points:
            bar.update(task, description=name_of(point))
            yield point
            bar.advance(task)


def _show(found: list[Figures]) -> None:
    headings = ("case", "GPUs", "jobs", "solve, check", "later p50, p99", "memory", "less than the bound", "decided")
    table = Table(*(Column(heading, overflow="fold") for heading in headings), box=box.SIMPLE)
    for known in found:
        jobs, times = (
            f"{known.running} + {known.pending}",
            f"{known.solve_s:.2f} s\n{known.check_s:.2f} s\n{known.to_deed_s:.2f} s",
        )
        warm = "" if known.warm_p50_s is None else f"{known.warm_p50_s:.2f} s\n{known.warm_p99_s:.2f} s"
        gaps = f"{known.gaps.worst_entitled_layer} {known.gaps.worst_entitled:.1%}"
        gaps += f"\nGPUs in use {known.gaps.gpus_in_use_gap:.2%}"
        decided = [f"{count} {kind}" for kind, count in known.steps.items()]
        decided += [f"{name} {value:g}" for name, value in known.more.items()]
        table.add_row(known.case, str(known.gpus), jobs, times, warm, f"{known.rss_mb} MB", gaps, "\n".join(decided))
    Console().print(table)


if __name__ == "__main__":
    main()
