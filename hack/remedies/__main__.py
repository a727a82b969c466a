"""Prints how often what would help does help: `python -m hack.remedies --seeds 500 [-o json]`."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence

import click

from hack.remedies.bugs import BUGS, caught_by
from hack.remedies.kinds import KINDS, Kind
from hack.remedies.trials import Trial, figures, trials


@click.command()
@click.option("--seeds", default=500, show_default=True, help="How many worlds.")
@click.option("--first", default=0, show_default=True, help="The first seed.")
@click.option(
    "--least", default=0.99, show_default=True, help="The part of the trials, nothing else waiting, that must start."
)
@click.option("--kind", "kinds", multiple=True, type=click.Choice(KINDS), help="Of worlds; all of them unless told.")
@click.option("--show", default=10, show_default=True, help="How many of the failed trials to print.")
@click.option("--bugs/--no-bugs", default=False, show_default=True, help="Show too that seeded bugs are caught.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def main(seeds: int, first: int, least: float, kinds: tuple[Kind, ...], show: int, bugs: bool, output: str) -> None:
    """Make each change that verdicts of random worlds name, and decide again. Exits with 1 if too few of the jobs start."""
    drawn, tried = range(first, first + seeds), list[Trial]()
    found: dict[str, object] = {"seeds": seeds}
    for kind in kinds or KINDS:
        of_kind = [trial for seed in drawn for trial in trials(seed, kind)]
        found[kind] = figures(of_kind)
        tried += of_kind
    alone = [trial for trial in tried if trial.alone]
    failed = [trial for trial in alone if trial.steps != 1]
    caught = {bug.__name__.replace("_", " "): caught_by(bug, drawn, kind) for bug, kind in BUGS.items() if bugs}
    by_codes = Counter(f"{trial.kind}, {trial.way}: {trial.codes}" for trial in failed)
    if output == "json":
        click.echo(json.dumps({**found, "failedBy": dict(by_codes.most_common()), "bugs": caught}, indent=2))
    else:
        for name, value in found.items():
            click.echo(f"{name:10} {value}")
        for codes, count in by_codes.most_common():
            click.echo(f"{count:6}  {codes}")
        for name, seed in caught.items():
            click.echo(f"MISSED  {name}" if seed is None else f"caught  {name}: seed {seed}")
        for trial in failed[:show]:
            click.echo(str(trial))
    enough = alone and all(_share(alone, kind) >= least for kind in kinds or KINDS)
    sys.exit(0 if enough and None not in caught.values() else 1)


def _share(alone: Sequence[Trial], kind: Kind) -> float:
    of = [trial.steps == 1 for trial in alone if trial.kind == kind]
    return sum(of) / len(of) if of else 0.0


if __name__ == "__main__":
    main()
