"""Kills and holds up leaders, and prints how long failover took: `python -m hack.failover --kills 20 --pauses 10 [-o json]`."""

from __future__ import annotations

import json
import sys
import time

import click

from hack.failover.drill import Drill, drill
from hack.postgresql.server import private_server


@click.command()
@click.option("--kills", default=20, show_default=True, help="How often the leader is killed (SIGKILL).")
@click.option("--pauses", default=10, show_default=True, help="How often it is held up past its lease (SIGSTOP).")
@click.option("--cuts", default=10, show_default=True, help="How often it loses all connections to the database.")
@click.option("--seed", default=0, show_default=True, help="In which order.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def main(kills: int, pauses: int, cuts: int, seed: int, output: str) -> None:
    """Two control planes on a private PostgreSQL, under load. Exits with 1 if a job was lost, ran twice or met another on a GPU."""
    began = time.monotonic()
    with private_server() as server:
        done = drill(server, kills, pauses, cuts, seed, tell=lambda blow: click.echo(blow, err=True))
    found = figures(done) | {"wallSeconds": round(time.monotonic() - began, 1)}
    if output == "json":
        click.echo(json.dumps({**found, "violations": done.violations}, indent=2))
    else:
        click.echo("\n".join([*(f"{name:20} {value}" for name, value in found.items()), *done.violations]))
    sys.exit(1 if done.violations else 0)


def figures(done: Drill) -> dict[str, float]:
    """What happened, in numbers; times in seconds, by the database's clock."""

    def count(kind: str) -> int:
        return sum(problem.startswith(kind) for problem in done.violations)

    return {
        "kills": done.kills,
        "pauses": done.pauses,
        "cuts": done.cuts,
        "jobs": done.jobs,
        "fencedWrites": done.writes,
        "staleWritesAccepted": count("stale write"),
        "staleWritesRefused": done.stale_refused,
        "lost": count("lost"),
        "runTwice": count("run twice"),
        "twoOwners": count("two owners"),
        **{f"elected{name}": value for name, value in _quantiles(done.elected_s).items()},
        **{f"acted{name}": value for name, value in _quantiles(done.acted_s).items()},
    }


def _quantiles(seconds: list[float]) -> dict[str, float]:
    """By nearest rank; of few, the 99th percentile is the largest."""
    ordered = sorted(seconds)
    return {
        f"P{percent}S": round(ordered[max(0, -(-len(ordered) * percent // 100) - 1)], 2)
        for percent in (50, 99)
        if ordered
    }


if __name__ == "__main__":
    main()
