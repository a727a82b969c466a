"""Says which seeded mutants the tests of CI catch: `python -m hack.mutants [--only NAME] [-o json]`."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence

import click

from hack.mutants.catalogue import Mutant, mutants
from hack.mutants.trial import BASELINE_LIMIT_S, Result, run_tests, scratch_copy, tried
from reconciler.model.problem import did_you_mean


@click.command()
@click.option("--only", multiple=True, metavar="NAME", help="An area, or a mutant; may be given again.")
@click.option(
    "--baseline/--no-baseline", default=True, show_default=True, help="See first that the tests pass without."
)
@click.option("--show", is_flag=True, help="Print what the tests of survivors said.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def main(only: tuple[str, ...], baseline: bool, show: bool, output: str) -> None:
    """Put each mutant into a copy of this checkout and run the tests that should catch it.

    Exits with 1 if one survives that should not, and with 2 if nothing can be said: the tests fail by themselves, or can't be run.
    """
    chosen = _chosen(only)
    results: dict[str, Result] = {}
    with scratch_copy() as scratch:
        if baseline:
            named = sorted({test for mutant in chosen for test in mutant.tests})
            status, printed = run_tests(scratch, named, BASELINE_LIMIT_S)
            if status != 0:
                click.echo(f"{printed}\nThe tests fail without any mutant: mend them first.", err=True)
                sys.exit(2)
        for mutant in chosen:
            result, printed = tried(mutant, scratch)
            results[mutant.name] = result
            if output == "text":
                click.echo(_line(mutant, result))
            if result == "broken" or (show and result == "survived"):
                click.echo(printed, err=True)
    unexpected = [one.name for one in chosen if results[one.name] == "survived" and not one.survives]
    counts = Counter(results.values())
    if output == "json":
        click.echo(json.dumps({"results": results, "counts": counts, "unexpected": unexpected}, indent=2))
    else:
        told = ", ".join(f"{number} {result}" for result, number in sorted(counts.items()))
        click.echo(f"{len(chosen)} mutants: {told}; survived unexpectedly: {', '.join(unexpected) or 'none'}")
    sys.exit(2 if counts["broken"] else 1 if unexpected else 0)


def _chosen(only: Sequence[str]) -> list[Mutant]:
    """Those that are named, or all. Raises click.UsageError for a name that there is not."""
    by_area = mutants()
    everything = [mutant for area in by_area.values() for mutant in area]
    known = {**{mutant.name: [mutant] for mutant in everything}, **by_area}
    for name in only:
        if name not in known:
            raise click.UsageError(f"There is no mutant and no area {name}. {did_you_mean(name, known) or ''}".rstrip())
    return list(dict.fromkeys(mutant for name in only for mutant in known[name])) if only else everything


def _line(mutant: Mutant, result: Result) -> str:
    if result == "survived" and mutant.survives:
        return f"survived  {mutant.name}, as is known: {mutant.survives}"
    more = f" ({mutant.why})" if result == "survived" else ", which was not to be expected" if mutant.survives else ""
    return f"{result:<9} {mutant.name}{more}"


if __name__ == "__main__":
    main()
