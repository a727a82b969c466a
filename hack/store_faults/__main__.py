"""Prints what failing disks did to the store: `python -m hack.store_faults --seeds 50 [-o json]`."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import click

from hack.store_faults.disks import FAULTS, DiskTrial, build, trial
from hack.store_faults.standby import TakeOver, take_over


@click.command()
@click.option("--seeds", default=20, show_default=True, help="Trials of each fault of a disk.")
@click.option("--first", default=0, show_default=True, help="The first seed.")
@click.option(
    "--lying/--honest", default=False, show_default=True, help="fsync says that it has been done, and has not."
)
@click.option("--fault", "faults", multiple=True, type=click.Choice(FAULTS), help="Of these alone.")
@click.option(
    "--take-overs",
    default=0,
    show_default=True,
    help="So often, in place of disks, a standby of PostgreSQL takes over.",
)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def main(seeds: int, first: int, lying: bool, faults: Sequence[str], take_overs: int, output: str) -> None:
    """Work on a store while its disk fails. Exits with 1 if what was acknowledged is lost, or a process does not come back."""
    if take_overs:
        sys.exit(_take_over(range(first, first + take_overs), output))
    with tempfile.TemporaryDirectory(prefix="quorate-shim-") as folder:
        shim = build(Path(folder))
        wanted = [fault for fault in FAULTS if not faults or fault in faults]
        done = [trial(seed, fault, shim, lying=lying) for fault in wanted for seed in range(first, first + seeds)]
    found = {fault: figures([one for one in done if one.fault == fault]) for fault in wanted}
    problems = [f"{one.fault} {one.seed}: {problem}" for one in done for problem in one.problems]
    if output == "json":
        click.echo(json.dumps({"lying": lying, **found, "problems": problems}, indent=2))
    else:
        for fault, values in found.items():
            click.echo(f"{fault:9} " + ", ".join(f"{name} {value}" for name, value in values.items()))
        click.echo("\n".join(problems))
    sys.exit(1 if problems else 0)


def _take_over(seeds: range, output: str) -> int:
    """Primaries are killed and held up, in turns."""
    kinds: tuple[TakeOver, ...] = get_args(TakeOver)
    done = [take_over(seed, kinds[seed % len(kinds)]) for seed in seeds]
    problems = [f"{one.kind} {one.seed}: {problem}" for one in done for problem in one.problems]
    sums = {name: sum(getattr(one, name) for one in done) for name in ("acknowledged", "refused", "late")}
    found = {"takeOvers": len(done), **sums}
    if output == "json":
        click.echo(json.dumps({**found, "problems": problems}, indent=2))
    else:
        click.echo("\n".join([", ".join(f"{name} {value}" for name, value in found.items()), *problems]))
    return 1 if problems else 0


def figures(done: Sequence[DiskTrial]) -> dict[str, int]:
    """What happened, in numbers."""

    def count(kind: str) -> int:
        return sum(problem.startswith(kind) for one in done for problem in one.problems)

    return {
        "trials": len(done),
        "hit": sum(bool(one.refused) or one.exit_code != 0 for one in done),
        "ended": sum(one.exit_code == 3 for one in done),
        "killed": sum(one.exit_code == -9 for one in done),
        "acknowledged": sum(one.acknowledged for one in done),
        "lost": count("lost"),
        "damaged": count("damaged"),
        "noticed": count("noticed"),
        "otherProblems": sum(len(one.problems) for one in done) - count("lost") - count("damaged") - count("noticed"),
    }


if __name__ == "__main__":
    main()
