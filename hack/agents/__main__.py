"""Prints what failing networks, machines, disks and clocks did: `python -m hack.agents --seeds 50 [--only network] [-o json]`."""

from __future__ import annotations

import json
import sys
from collections import Counter

import click

from hack.agents.bugs import BUGS, caught_by
from hack.agents.run import FAULTS, NETWORK, Outcome, run_seed


@click.command()
@click.option("--seeds", default=50, show_default=True, help="How many runs.")
@click.option("--first", default=0, show_default=True, help="The first seed.")
@click.option(
    "--only",
    type=click.Choice(["network", "all"]),
    default="all",
    show_default=True,
    help="What may fail: links alone, by which nothing that runs may be ended, or everything.",
)
@click.option("--bugs/--no-bugs", default=True, show_default=True, help="Show too that seeded bugs are caught.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def main(seeds: int, first: int, only: str, bugs: bool, output: str) -> None:
    """Run agents and control planes over what fails, and judge what ran. Exits with 1 if anything was found."""
    faults = NETWORK if only == "network" else FAULTS
    outcomes = [run_seed(seed, faults) for seed in range(first, first + seeds)]
    caught = {bug.__name__.replace("_", " "): caught_by(bug) for bug in BUGS if bugs}
    violations = [f"seed {outcome.seed}: {problem}" for outcome in outcomes for problem in outcome.violations]
    found = {**figures(outcomes), "violations": violations, "bugs": caught}
    if output == "json":
        click.echo(json.dumps(found, indent=2))
    else:
        click.echo("\n".join(f"{name:12} {value}" for name, value in found.items()))
    sys.exit(1 if violations or None in caught.values() else 0)


def figures(outcomes: list[Outcome]) -> dict[str, object]:
    """What was seen, in numbers. `healedSeconds`: until all jobs had ended, from when nothing failed any more."""
    befell = sum((outcome.befell for outcome in outcomes), Counter[str]())
    of = ("passes", "orders", "evictions", "turned", "flaps")
    sums = {name: sum(getattr(outcome, name) for outcome in outcomes) for name in of}
    healed = sorted(outcome.healed_s for outcome in outcomes)
    rest = {"half": healed[len(healed) // 2], "most": healed[-1]} if healed else {}
    rested = sum(not any("no rest" in problem for problem in outcome.violations) for outcome in outcomes)
    return {"seeds": len(outcomes), "befell": dict(befell), **sums, "rested": rested, "healedSeconds": rest}


if __name__ == "__main__":
    main()
