"""Prints the figures of the crash test: `python -m hack.crash --seeds 300 [-o json]`."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import get_args

import click
from rich.console import Console
from rich.progress import track

from hack.crash.bugs import BUGS, caught_by
from hack.crash.doors import LOOP_WRITES, Moment
from hack.crash.harness import Outcome, run_seed


@click.command()
@click.option("--seeds", default=200, show_default=True, help="How many runs.")
@click.option("--first", default=0, show_default=True, help="The first seed.")
@click.option("--bugs/--no-bugs", default=True, show_default=True, help="Show too that seeded bugs are caught.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def main(seeds: int, first: int, bugs: bool, output: str) -> None:
    """Kill the control plane over many seeds and judge what ran. Exits with 1 if anything was found, or a gate was not come to."""
    console = Console(stderr=True)
    began = time.monotonic()
    numbers = track(range(first, first + seeds), "Crashing", console=console, transient=True)
    outcomes = [run_seed(seed) for seed in numbers]
    hunted = track(BUGS if bugs else (), "Seeding bugs", console=console, transient=True)
    caught = {bug.__name__.replace("_", " "): caught_by(bug) for bug in hunted}
    found = figures(outcomes) | {"wallSeconds": round(time.monotonic() - began, 1)}
    violations = [f"seed {outcome.seed}: {problem}" for outcome in outcomes for problem in outcome.violations]
    at_gates = gates(outcomes)
    missed = [write for write, (passed, _) in at_gates.items() if not passed]
    if output == "json":
        each = {write: {"passed": passed, "killed": killed} for write, (passed, killed) in at_gates.items()}
        told = {**found, "gates": each, "gatesMissed": missed, "violations": violations, "bugs": caught}
        click.echo(json.dumps(told, indent=2))
    else:
        click.echo("\n".join((*_lines(found, violations, caught), *_gate_lines(at_gates))))
    sys.exit(1 if violations or missed or None in caught.values() else 0)


def gates(outcomes: Sequence[Outcome]) -> dict[str, tuple[int, int]]:
    """For each write of the loop: how often a run came to it, and how often a control plane was killed just before or after it."""
    passed = sum((outcome.passed for outcome in outcomes), Counter[str]())
    killed = sum((outcome.killed for outcome in outcomes), Counter[str]())
    moments = get_args(Moment)
    return {write: (passed[f"before {write}"], sum(killed[f"{at} {write}"] for at in moments)) for write in LOOP_WRITES}


def figures(outcomes: list[Outcome]) -> dict[str, float]:
    """What PROMISES R1 to R4 ask for."""
    problems = [problem for outcome in outcomes for problem in outcome.violations]

    def count(kind: str) -> int:
        return sum(problem.startswith(kind) for problem in problems)

    return {
        "seeds": len(outcomes),
        "gatesPassed": sum(outcome.gates for outcome in outcomes),
        "crashes": sum(outcome.kills for outcome in outcomes),
        "clocksSet": sum(outcome.stepped for outcome in outcomes),
        "leadersHeldUp": sum(outcome.pauses for outcome in outcomes),
        "staleLeadersRefused": sum(outcome.stale_refused for outcome in outcomes),
        "staleWritesAccepted": count("stale write accepted"),
        "doubleBound": count("double-bound"),
        "lost": count("lost"),
        "doubledStarts": count("doubled"),
        "mistold": count("mistold:"),
        "runAgainAfterSuccess": count("run again"),
        "ungatedWrites": count("ungated write"),
        "cutShort": count("cut short"),
        "mistoldActs": count("mistold act") + count("unlawful"),
        "otherViolations": count("left over") + count("false outcome") + count("the loop died"),
    }


def _lines(found: dict[str, float], violations: list[str], caught: dict[str, tuple[int, str] | None]) -> Iterator[str]:
    yield from (f"{name:22} {value}" for name, value in found.items())
    yield from violations
    for name, seen in caught.items():
        yield f"caught  {name}: seed {seen[0]}, {seen[1]}" if seen else f"MISSED  {name}"


def _gate_lines(at_gates: dict[str, tuple[int, int]]) -> Iterator[str]:
    for write, (passed, killed) in at_gates.items():
        yield f"gate    {write}: {passed} times, {killed} kills" if passed else f"MISSED  gate {write}"


if __name__ == "__main__":
    main()
