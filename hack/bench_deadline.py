"""How far rounds overrun the time limit of the program on a busy machine: `python -m hack.bench_deadline -o json`.

One round of each of many seeded clusters, whose program mostly takes longer than it may: decided as the control plane does, by a
child process.
"""

from __future__ import annotations

import json
from dataclasses import replace
from time import perf_counter

import click
import msgspec
from rich.console import Console

from hack.rounds.cases import with_limit
from hack.rounds.load import busy
from hack.rounds.timing import quantile
from hack.rounds.world import World
from reconciler.control.optimiser import KillableOptimiser
from reconciler.control.recording import solver_with
from solver.checker.check import violations
from solver.milp.optimiser import Awaited, ConcurrentOptimiser, Effort, Optimiser, Program, Solution, begun
from solver.model.arrays import Floats


class Waited(msgspec.Struct):
    """What a round asked of the program, and the seconds for which it waited. `unanswered`: killed, or not there in time.

    `cut`: the clock had a say, be it that something was not asked any more.
    """

    waited_s: float = 0.0
    questions: int = 0
    unanswered: int = 0
    cut: bool = False


class Overrun(msgspec.Struct, frozen=True, kw_only=True):
    """Of `rounds`, those in which the clock cut the program, and their waiting for it in parts of the limit."""

    gpus: int
    pending: int
    seed: int
    hogs: int
    budget_s: float
    rounds: int
    asked: int
    cut: int
    unanswered: int
    of_budget_p50: float | None
    of_budget_p99: float | None
    of_budget_max: float | None
    checker_violations: int


class Metered(ConcurrentOptimiser):
    """An Optimiser that asks another, and keeps how long that took in this round."""

    def __init__(self, optimiser: Optimiser) -> None:
        self._optimiser = optimiser
        self.of_round = Waited()

    def begin(self, program: Program, start: Floats, effort: Effort) -> Awaited:
        """The other's answer, waited for later."""
        waiting, found = begun(self._optimiser, program, start, effort), self.of_round

        def answer() -> Solution | None:
            since = perf_counter()
            solution = waiting()
            found.waited_s += perf_counter() - since
            found.questions += 1
            found.unanswered += solution is None
            return solution

        return answer


def measure(world: World, rounds: int, budget_s: float, hogs: int) -> Overrun:
    """Decide a round of so many worlds like this, one seed after the other, beside so many processes that compute."""
    waited, broken = list[Waited](), 0
    with KillableOptimiser() as optimiser:
        optimiser.warm_up()
        metered = Metered(optimiser)
        solve_once = solver_with(metered)
        with busy(hogs):
            for number in range(rounds):
                this = replace(world, seed=world.seed + number)
                snapshot, policy = this.snapshot, with_limit(this.policy, budget_s)
                metered.of_round = Waited()
                plan, answers = solve_once(snapshot, policy).conclude()
                metered.of_round.cut = bool(answers)
                waited.append(metered.of_round)
                broken += len(violations(snapshot, policy, plan))
    cut = [known for known in waited if known.cut]
    parts = sorted(known.waited_s / budget_s for known in cut)
    return Overrun(
        gpus=world.gpus,
        pending=world.pending,
        seed=world.seed,
        hogs=hogs,
        budget_s=budget_s,
        rounds=rounds,
        asked=sum(known.questions > 0 for known in waited),
        cut=len(cut),
        unanswered=sum(known.unanswered > 0 for known in waited),
        of_budget_p50=quantile(parts, 0.5),
        of_budget_p99=quantile(parts, 0.99),
        of_budget_max=quantile(parts, 1.0),
        checker_violations=broken,
    )


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--gpus", type=click.IntRange(min=512), default=1024, show_default=True)
@click.option("--pending", type=click.IntRange(min=1), default=300, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True, help="Of the first cluster.")
@click.option("--rounds", type=click.IntRange(min=1), default=100, show_default=True)
@click.option(
    "--budget-s", type=click.FloatRange(min=0.001), default=0.5, show_default=True, help="The program's, in each round."
)
@click.option("--hogs", type=click.IntRange(min=0), default=3, show_default=True, help="Processes that compute beside.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def main(gpus: int, pending: int, seed: int, rounds: int, budget_s: float, hogs: int, output: str) -> None:
    """Decide rounds whose program needs more time than it has, and say how long they waited for it."""
    found = measure(World(gpus, pending, seed=seed), rounds, budget_s, hogs)
    if output == "json":
        click.echo(json.dumps(msgspec.to_builtins(found), indent=2))
        return
    console = Console()
    console.print(f"{found.cut} of {rounds} rounds were cut, {found.unanswered} of them without an answer")
    if found.cut:
        parts = found.of_budget_p50, found.of_budget_p99, found.of_budget_max
        console.print("waited, in parts of the limit: p50 {}, p99 {}, at most {}".format(*parts))


if __name__ == "__main__":
    main()
