"""Prints what months of churn show: `python -m hack.soak --hours 100000 --shards 10 --state build/soak [-o json]`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from hack.soak.shards import Shards, added_up
from hack.soak.stretch import Stretch
from reconciler.control.garbage_collection import seldom


@click.command()
@click.option("--hours", default=2_000, show_default=True, help="Simulated hours, of all shards together.")
@click.option("--seed", default=1, show_default=True, help="Of the first shard; each other has the next.")
@click.option("--shards", default=1, show_default=True, help="Independent stretches, each in a process of its own.")
@click.option("--workers", default=2, show_default=True, help="How many shards run at once.")
@click.option(
    "--most", default=0.03, show_default=True, help="By which part memory may grow from the second third to the last."
)
@click.option(
    "--state",
    type=click.Path(file_okay=False, path_type=Path),
    help="A folder for what is put by on the way. Started again with the same one, it goes on from there.",
)
@click.option(
    "--keep",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where to keep the last round of a stretch in which something is wrong.",
)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def main(
    hours: int,
    seed: int,
    shards: int,
    workers: int,
    most: float,
    state: Path | None,
    keep: Path | None,
    output: str,
) -> None:
    """Run a cluster for so long. Exits with 1 if a rule was broken, books differ, or memory grows."""
    one = Stretch(hours // shards, seed, state, keep)
    if shards > 1:
        found = added_up(Shards(one, shards, workers).run())
    else:
        seldom()  # as `quorate run` does
        found = one.run(lambda line: click.echo(line, err=True))
    if output == "json":
        click.echo(json.dumps(found, indent=2))
    else:
        click.echo("\n".join(f"{name:16} {value}" for name, value in found.items()))
    grown = found["growth"]
    grows = any((grown[name] or 0) > most for name in ("objects", "rss_mb"))
    sys.exit(1 if found["problems"] or grows else 0)


if __name__ == "__main__":
    main()
