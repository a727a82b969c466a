"""Prints what a tenant feels of one that floods: `python -m hack.neighbours --turns 3 --times 20 [-o json]`."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import click

from hack.neighbours.tenants import measure, medians, ratios


@click.command()
@click.option("--turns", default=3, show_default=True, help="How often it is quiet, and then not.")
@click.option("--times", default=20, show_default=True, help="Jobs and looks of the quiet tenant in each.")
@click.option(
    "--most",
    default=0.0,
    show_default=True,
    help="Exit with 1 where a latency's median is more than so many times the quiet one; 0: never.",
)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def main(turns: int, times: int, most: float, output: str) -> None:
    """Compare a tenant's latencies in quiet with those beside a flood.

    Fails where a job inside its guarantee is not started, and exits with 1 where one of its requests was refused.
    """
    with tempfile.TemporaryDirectory(prefix="quorate-neighbours-") as folder:
        quiet, noise = measure(Path(folder), turns, times)
    found, refused = ratios(quiet, noise), sum((quiet.refused + noise.refused).values())
    if output == "json":
        click.echo(
            json.dumps(
                {
                    "started": len(quiet.starts) + len(noise.starts),
                    "refused": refused,
                    "medianMs": medians(quiet, noise),
                    "times": found,
                    "flood": noise.counts,
                },
                indent=2,
            )
        )
    else:
        for name, of in found.items():
            calm, loud = medians(quiet, noise)[name]
            click.echo(f"{name:8} median {calm} ms, beside a flood {loud} ms; p50 x {of['p50']:6} p99 x {of['p99']:6}")
        click.echo(f"started {len(quiet.starts) + len(noise.starts)}, refused {refused}")
        click.echo(", ".join(f"{name} {count}" for name, count in sorted(noise.counts.items())))
    is_slow = most and any(of["p50"] > most for of in found.values())
    sys.exit(1 if refused or is_slow else 0)


if __name__ == "__main__":
    main()
