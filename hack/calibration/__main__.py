"""Prints which part of forecasts is kept: `python -m hack.calibration --seeds 20 [--trace philly.csv] [-o json]`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from hack.calibration.forecasts import ForecastFate, fates, kept, kept_by
from hack.calibration.world import crowded

QUANTILES = (0.5, 0.9)


@click.command()
@click.option("--seeds", default=20, show_default=True, help="How many worlds.")
@click.option("--first", default=0, show_default=True, help="The first seed.")
@click.option("--hours", default=24, show_default=True, help="For so long jobs arrive in each.")
@click.option(
    "--trace", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Windows of this trace; else drawn."
)
@click.option("--closed", is_flag=True, help="All jobs come at once: nothing arrives after a forecast.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def main(seeds: int, first: int, hours: int, trace: Path | None, closed: bool, output: str) -> None:
    """Replay worlds twice: jobs without a limit are expected to run as long as half of earlier ones, and as long as 9 in 10."""
    numbers = range(first, first + seeds)
    found = {
        f"p{quantile * 100:.0f}": report(
            [fate for seed in numbers for fate in fates(crowded(seed, quantile, trace, hours, closed=closed))]
        )
        for quantile in QUANTILES
    }
    if output == "json":
        click.echo(json.dumps({"seeds": seeds, "hours": hours, **found}, indent=2))
        return
    for quantile, of in found.items():
        for part, values in of.items():
            for name, (count, share) in values.items():
                click.echo(f"{quantile}  {part:8}  {name:12} {count:7}  {'none' if share is None else f'{share:.1%}'}")


def report(found: list[ForecastFate]) -> dict[str, dict[str, tuple[int, float | None]]]:
    """How many were kept of all, by what they were made, by class, by queue and by world."""
    return {
        "all": {"all": kept(found)},
        "basis": kept_by(found, lambda fate: fate.basis),
        "class": kept_by(found, lambda fate: fate.priority_class),
        "queue": kept_by(found, lambda fate: fate.queue),
        "world": kept_by(found, lambda fate: f"{fate.seed:04}"),
    }


if __name__ == "__main__":
    main()
