"""Faults between a scheduler and its API server, over many seeds: `python -m hack.kubernetes.faults --seeds N [-o json]`."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import click
from rich.console import Console
from rich.progress import track

from hack.kubernetes.cluster import running
from hack.kubernetes.components import API_SERVER, ETCD, completed, place
from hack.kubernetes.faults.bugs import BUGS
from hack.kubernetes.faults.profile import PROFILES, Profile
from hack.kubernetes.faults.seed import Outcome, arena, run_seed


@click.command()
@click.option("--seeds", default=200, show_default=True, help="How many runs.")
@click.option("--first", default=0, show_default=True, help="The first seed.")
@click.option("--bug", type=click.Choice(["", *BUGS]), default="", help="Break the scheduler on purpose, so.")
@click.option("--profile", type=click.Choice([one.name for one in PROFILES]), help="These faults.  [default: in turn]")
@click.option("--fence/--no-fence", default=True, show_default=True, help="Install the fence against former leaders.")
@click.option("--keep", type=click.Path(file_okay=False, path_type=Path), help="Keep the logs in this folder.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def main(*, seeds: int, first: int, bug: str, profile: str | None, fence: bool, keep: Path | None, output: str) -> None:
    """Judge what a faulty way to the API server makes of gangs. Exits with 1 if anything was found, and names the seeds."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="quorate-faults-") as made:
        folder = keep or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        chosen = next((one for one in PROFILES if one.name == profile), None)
        outcomes = asyncio.run(_all(folder, range(first, first + seeds), bug, chosen, fenced=fence))
    found = figures(outcomes) | {"wallSeconds": round(time.monotonic() - began, 1)}
    violations = [
        f"seed {one.seed} ({one.profile}): {kind}: {what}" for one in outcomes for kind, what in one.violations
    ]
    if output == "json":
        click.echo(json.dumps({**found, "violations": violations}, indent=2))
    else:
        click.echo("\n".join([*(f"{name:16} {value}" for name, value in found.items()), *violations]))
    sys.exit(1 if violations else 0)


async def _all(folder: Path, seeds: range, bug: str, profile: Profile | None, *, fenced: bool) -> list[Outcome]:
    where = completed(place(), (ETCD, API_SERVER))
    server = folder / "cluster"
    server.mkdir()
    with running(where, server) as cluster:
        async with arena(cluster, folder, fenced=fenced) as there:
            numbers = track(seeds, "Faults", console=Console(stderr=True), transient=True)
            return [await run_seed(there, seed, bug, profile) for seed in numbers]


def figures(outcomes: list[Outcome]) -> dict[str, object]:
    """What there was of everything, over all seeds."""
    faults: Counter[str] = Counter()
    for outcome in outcomes:
        faults.update(outcome.befell)
    kinds = Counter(kind for outcome in outcomes for kind, _ in outcome.violations)
    return {
        "seeds": len(outcomes),
        "requests": sum(outcome.requests for outcome in outcomes),
        "faults": dict(sorted(faults.items())),
        "kills": sum(outcome.kills for outcome in outcomes),
        "ended": sum(outcome.ended for outcome in outcomes),
        "bindings": sum(outcome.bindings for outcome in outcomes),
        "roundsMax": max((outcome.rounds for outcome in outcomes), default=0),
        "doubleBound": kinds["double-bound"],
        "boundTwice": kinds["bound-twice"],
        "nowhere": kinds["nowhere"],
        "staleAccepted": kinds["stale-accepted"],
        "unguarded": kinds["unguarded"],
        "partial": kinds["partial"],
        "lost": kinds["lost"],
    }


if __name__ == "__main__":
    main()
