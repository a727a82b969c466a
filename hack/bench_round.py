"""How long one round takes, from snapshot to checked plan: `python -m hack.bench_round --case contended`.

The greedy answer with its evictions, without the integer program, in this process; times are of the wall.
"""

from __future__ import annotations

import json
from collections import Counter
from time import perf_counter

import click
import msgspec
from rich.console import Console
from rich.table import Table

from hack.round_worlds import Contended
from solver.plan.check import violations
from solver.solve import solve

CASES = ("contended", "contended-elastic")


class Timed(msgspec.Struct, frozen=True, kw_only=True):
    """One round, and what was decided in it."""

    case: str
    gpus: int
    pending: int
    running: int
    seed: int
    solve_s: float
    check_s: float
    steps: dict[str, int]
    violations: int


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--case", type=click.Choice([*CASES, "all"]), default="all", show_default=True)
@click.option("--gpus", type=click.IntRange(min=160), default=4096, show_default=True, help="GPUs of the cluster.")
@click.option("--pending", type=click.IntRange(min=0), default=1000, show_default=True, help="Gangs that wait.")
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def main(case: str, gpus: int, pending: int, seed: int, output: str) -> None:
    """Time rounds of a nearly full cluster in which everybody asks for more."""
    cases = CASES if case == "all" else (case,)
    found = [time_round(name, Contended(gpus, pending, name == "contended-elastic", seed)) for name in cases]
    if output == "json":
        click.echo(json.dumps([msgspec.to_builtins(timed) for timed in found], indent=2))
        return
    table = Table("case", "running", "solve", "check", "steps", title=f"{gpus} GPUs, {pending} gangs wait, seed {seed}")
    for timed in found:
        steps = ", ".join(f"{count} {kind}" for kind, count in timed.steps.items())
        table.add_row(timed.case, str(timed.running), f"{timed.solve_s:.1f} s", f"{timed.check_s:.1f} s", steps)
    Console().print(table)


def time_round(case: str, world: Contended) -> Timed:
    """Solve and check once. Violations would be a fault of the solver or the checker: they are reported, not hidden."""
    snapshot, policy = world.snapshot, world.policy
    began = perf_counter()
    plan = solve(snapshot, policy, None)
    solved = perf_counter()
    found = violations(snapshot, policy, plan)
    checked = perf_counter()
    return Timed(
        case=case,
        gpus=world.gpus,
        pending=world.pending,
        running=sum(job.phase == "running" for job in snapshot.jobs),
        seed=world.seed,
        solve_s=round(solved - began, 2),
        check_s=round(checked - solved, 2),
        steps=dict(sorted(Counter(type(step).__name__.lower() for step in plan.steps).items())),
        violations=len(found),
    )


if __name__ == "__main__":
    main()
