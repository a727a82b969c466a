"""Prints what old views did: `python -m hack.stale_views --seeds 100 [-o json]`."""

from __future__ import annotations

import json
import sys
from collections import Counter

import click

from hack.stale_views.bugs import BUGS, caught_by
from hack.stale_views.run import Outcome, run_seed


@click.command()
@click.option("--seeds", default=50, show_default=True, help="How many runs.")
@click.option("--first", default=0, show_default=True, help="The first seed.")
@click.option("--bugs/--no-bugs", default=True, show_default=True, help="Show too that seeded bugs are caught.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def main(seeds: int, first: int, bugs: bool, output: str) -> None:
    """Show control planes old views of a cluster, and judge what ran. Exits with 1 if anything was found."""
    outcomes = [run_seed(seed) for seed in range(first, first + seeds)]
    caught = {bug.__name__.replace("_", " "): caught_by(bug) for bug in BUGS if bugs}
    violations = [f"seed {outcome.seed}: {problem}" for outcome in outcomes for problem in outcome.violations]
    found = {**figures(outcomes), "violations": violations, "bugs": caught}
    if output == "json":
        click.echo(json.dumps(found, indent=2))
    else:
        click.echo("\n".join(f"{name:12} {value}" for name, value in found.items()))
    sys.exit(1 if violations or None in caught.values() else 0)


def figures(outcomes: list[Outcome]) -> dict[str, object]:
    """What was seen, in numbers."""
    views = sum((outcome.views for outcome in outcomes), Counter[str]())
    of = ("passes", "takeovers", "evictions", "turned", "flaps")
    sums = {name: sum(getattr(outcome, name) for outcome in outcomes) for name in of}
    return {"seeds": len(outcomes), "staleViews": dict(views), **sums, "rested": sum(_rested(one) for one in outcomes)}


def _rested(outcome: Outcome) -> bool:
    return not any(problem.startswith("no rest") for problem in outcome.violations)


if __name__ == "__main__":
    main()
