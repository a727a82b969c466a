"""`python -m hack.supply_chain`: whether licences are allowed, advisories known, and secrets committed; `make supply-chain`."""

from __future__ import annotations

import sys

import click

from hack.supply_chain.advisories import audited
from hack.supply_chain.leaks import leaks
from hack.supply_chain.licences import objections
from hack.supply_chain.packages import locked
from hack.supply_chain.problem import ProblemError


@click.command()
@click.option(
    "--history", is_flag=True, help="Look for secrets in all commits, and not only in those since the last time."
)
def main(history: bool) -> None:
    """Say what was looked at and what was found; exit with 1 where anything was. What can't be looked at here is SKIPPED."""
    found = [*_licences(), *_advisories(), *_secrets(history)]
    for problem in found:
        click.echo(f"error: {problem}", err=True)
    sys.exit(bool(found))


def _licences() -> list[str]:
    packages = tuple(locked())
    found = [str(error) for error in objections(packages)]
    click.echo(f"licences: {len(packages)} packages, {len(found)} that may not be shipped")
    return found


def _advisories() -> list[str]:
    audit = audited()
    click.echo(f"advisories: {audit.asked} packages asked for, {len(audit.found)} advisories")
    if audit.unasked:
        click.echo(f"SKIPPED: advisories of {'the other' if audit.asked else 'all'} packages, because {audit.unasked}")
    return [f"{each}. Raise the version: `python -m hack.image_lock`" for each in audit.found]


def _secrets(history: bool) -> list[str]:
    try:
        found = leaks(history)
    except ProblemError as error:
        click.echo(f"SKIPPED: secrets, because {error}")
        return []
    click.echo(f"secrets: {'all commits' if history else 'commits since the last whole look'}, {len(found)} found")
    fix = "Withdraw it where it is valid; one that is made up goes into .gitleaksignore"
    return [f"{each}. {fix}" for each in found]


if __name__ == "__main__":
    main()
