"""Prints what months of churn show: `python -m hack.soak --hours 100000 [--seed 1] [-o json]`."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from operator import attrgetter
from pathlib import Path

import click
import msgspec

from hack.soak.soak import Sample, Soak, growth
from reconciler.control.garbage_collection import seldom


@click.command()
@click.option("--hours", default=2_000, show_default=True, help="Simulated hours.")
@click.option("--seed", default=1, show_default=True)
@click.option(
    "--most", default=0.03, show_default=True, help="By which part memory may grow from the second third to the last."
)
@click.option(
    "--keep",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where to keep the round of a plan that is refused.",
)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def main(hours: int, seed: int, most: float, keep: Path | None, output: str) -> None:
    """Run a cluster for so long. Exits with 1 if a rule was broken, books differ, or memory grows."""
    seldom()  # as `quorate run` does
    began = time.monotonic()

    def seen(sample: Sample) -> None:
        click.echo(" ".join(f"{name} {value}" for name, value in msgspec.to_builtins(sample).items()), err=True)

    with tempfile.TemporaryDirectory(prefix="quorate-soak-") as folder:
        soak = Soak(seed, Path(folder) / "quorate.db")
        came = soak.run(hours, max(hours // 30, 1), seen)
    if keep is not None and soak.refused is not None:
        keep.mkdir(exist_ok=True)
        for name, content in zip(("snapshot", "policy"), soak.refused, strict=True):
            (keep / f"{name}.json").write_bytes(content)
    wall_s = time.monotonic() - began
    grown = {name: round(growth(came.samples, attrgetter(name)), 4) for name in ("objects", "rss_mb", "pass_ms")}
    found = {
        "seed": seed,
        "hours": round(came.hours),
        "passes": came.steps,
        **came.counts,
        "growth": grown,
        "storeMb": came.samples[-1].store_mb if came.samples else None,
        "wallSeconds": round(wall_s, 1),
        "hoursPerMinute": round(came.hours / wall_s * 60),
        "problems": came.problems,
    }
    if output == "json":
        click.echo(json.dumps(found, indent=2))
    else:
        click.echo("\n".join(f"{name:16} {value}" for name, value in found.items()))
    sys.exit(1 if came.problems or grown["objects"] > most or grown["rss_mb"] > most else 0)


if __name__ == "__main__":
    main()
