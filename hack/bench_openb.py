"""How much of the openb cluster's GPUs Quorate gives away, beside what FGD's authors published: `python -m hack.bench_openb`.

Pods arrive, none departs, and what finds no place is dropped. `--batch 1` decides pod by pod, through the greedy answer that
every round begins with, on one room that is kept; prices are made anew every 300 pods. `--batch N` holds a round of
`solve` for every N pods, as the control plane does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, pstdev
from time import perf_counter

import click
import msgspec
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from hack.openb import arrivals, policy, read_nodes, read_pods, read_published
from solver.capacity.free_capacity import FreeCapacity
from solver.capacity.sharing import sharing_of
from solver.milp.optimiser import Optimiser
from solver.milp.prices import fit_for
from solver.model.cluster import Node
from solver.model.quantities import MILLI_PER_GPU, Instant
from solver.model.round_cache import RoundCache
from solver.model.snapshot import snapshot_of
from solver.model.workload import Job, JobName, TaskGroup, TaskPlacement
from solver.placement.fit import Fit
from solver.placement.greedy import greedy
from solver.plan.plan import Bind
from solver.policy.policy import Policy
from solver.policy.tree import QueueTree
from solver.queueing.demand import StartCandidate, SubLayer
from solver.quota.entitlement import shares_of
from solver.quota.options import Option, options_of
from solver.round.solve import solve

LISTS = ("default", "cpu100", "gpushare40", "gpuspec20", "multigpu30")
DEMANDS_PCT = (80, 90, 95, 100, 110, 120, 130)
ROUND = 200
REPRICED_EVERY = 300
TIE_RULE = "smallest node name, then smallest device"

Placements = Iterator[tuple[JobName, tuple[TaskPlacement, ...]]]


@dataclass(slots=True)
class OneByOne:
    """Pods placed one at a time in one room."""

    nodes: tuple[Node, ...]
    policy: Policy
    optimiser: Optimiser | None
    repriced_every: int = REPRICED_EVERY
    _options: dict[tuple[TaskGroup, ...], tuple[Option, ...]] = field(default_factory=dict)

    def place(self, pods: Iterable[Job]) -> Placements:
        """Each pod that finds a place, as it is placed."""
        tree = QueueTree.of(self.policy)
        shares = shares_of(snapshot_of(Instant(0), self.nodes, ()), tree)
        sharing = sharing_of(self.policy, tree, self.nodes)
        room = FreeCapacity.empty(self.nodes)
        live: list[Job] = []
        fit: Fit | None = None
        due = 0
        for number, pod in enumerate(pods):
            if number >= due:
                due = min(2 * number, number + self.repriced_every) or 1
                snapshot = snapshot_of(pod.submitted_at, self.nodes, [*live, pod])
                fit = fit_for(snapshot, room, sharing, self.policy.scheduling.solver, self.optimiser)
            groups = pod.spec.task_groups
            if groups not in self._options:
                self._options[groups] = options_of(pod.spec, room.gpu_types, sharing)
            candidate = StartCandidate(pod, SubLayer(False, 0, 0), 0, self._options[groups], 0)
            for start in greedy([candidate], room, shares, fit=fit):
                live.append(_running(pod, start.placed.tasks))
                yield pod.name, start.placed.tasks


@dataclass(slots=True)
class InRounds:
    """So many pods in each round of `solve`."""

    nodes: tuple[Node, ...]
    policy: Policy
    optimiser: Optimiser | None
    size: int

    def place(self, pods: Sequence[Job]) -> Placements:
        """Each pod that finds a place, round by round."""
        live, kept = list[Job](), RoundCache()
        for first in range(0, len(pods), self.size):
            batch = {pod.name: pod for pod in pods[first : first + self.size]}
            now = pods[min(len(pods), first + self.size) - 1].submitted_at
            snapshot = snapshot_of(now, self.nodes, [*live, *batch.values()])
            plan = solve(snapshot, self.policy, self.optimiser, kept)
            for step in plan.steps:
                if isinstance(step, Bind):
                    live.append(_running(batch[step.job], step.tasks))
                    yield step.job, step.tasks


def _running(pod: Job, tasks: tuple[TaskPlacement, ...]) -> Job:
    return msgspec.structs.replace(pod, phase="running", attempt=1, started_at=pod.submitted_at, placement=tasks)


def allocated_pct(pods: Sequence[Job], placed: set[JobName], gpus: int) -> dict[int, float]:
    """GPUs given away, in per cent of the cluster, when the pods that have arrived ask for so many per cent of it."""
    demands, found = list(DEMANDS_PCT), {}
    asked = given = 0
    for pod in pods:
        asked += pod.spec.gpus
        given += pod.spec.gpus if pod.name in placed else 0
        while demands and asked >= demands[0] / 100 * gpus * MILLI_PER_GPU:
            found[demands.pop(0)] = 100 * given / (gpus * MILLI_PER_GPU)
    return found


class Result(msgspec.Struct, frozen=True):
    """What a run of several seeds measured."""

    list: str
    batch: int
    tie_rule: str
    seeds: int
    alloc_pct: dict[str, float]
    sd: dict[str, float]
    seconds: float


def measure(traces: Path, name: str, batch: int, seeds: Sequence[int], progress: Callable[[float], None]) -> Result:
    """Replay a list once for each seed. Raises OSError, KeyError, ValueError where the files are not the trace's."""
    from solver.milp.highs import optimise

    nodes = read_nodes(traces)
    specs = read_pods(traces, name, nodes)
    gpus = sum(len(node.gpus) for node in nodes)
    began = perf_counter()
    runs: list[dict[int, float]] = []
    for seed in seeds:
        pods = arrivals(specs, gpus, seed)
        way = OneByOne(nodes, policy(), optimise) if batch == 1 else InRounds(nodes, policy(), optimise, batch)
        placed: set[JobName] = set()
        for job, _ in way.place(pods):
            placed.add(job)
            progress(len(runs) + len(placed) / len(pods))
        runs.append(allocated_pct(pods, placed, gpus))
    by_demand = {str(demand): [run[demand] for run in runs] for demand in DEMANDS_PCT}
    return Result(
        name,
        batch,
        TIE_RULE,
        len(runs),
        {demand: round(fmean(values), 3) for demand, values in by_demand.items()},
        {demand: round(pstdev(values), 3) for demand, values in by_demand.items()},
        round(perf_counter() - began, 1),
    )


class BatchParam(click.ParamType[int]):
    """A number of pods, or `round` for the usual 200."""

    name = "batch"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read it; a usage error where it is neither."""
        if value == "round":
            return ROUND
        if not str(value).isdecimal() or int(str(value)) < 1:
            self.fail(f"{value!r} is neither a number of pods nor 'round'", param, ctx)
        return int(str(value))


@click.command()
@click.option(
    "--traces",
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of the traces.",
)
@click.option("--list", "name", default="default", show_default=True, type=click.Choice(LISTS), help="The pod list.")
@click.option(
    "--batch", default="1", show_default=True, type=BatchParam(), help="Pods decided at once; `round` is 200."
)
@click.option("--seeds", default=10, show_default=True, type=click.IntRange(min=1), help="How many seeds, from 0.")
@click.option("-o", "--output", default="text", type=click.Choice(["text", "json"]), help="How to print the result.")
def main(traces: Path, name: str, batch: int, seeds: int, output: str) -> None:
    """Replay a pod list of openb and say how much of the cluster's GPUs was given away."""
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(name, total=seeds)
        try:
            result = measure(traces, name, batch, range(seeds), lambda done: bar.update(task, completed=done))
            published = read_published(traces, name)
        except (OSError, KeyError, ValueError) as error:
            raise click.ClickException(f"{traces} does not hold the trace: {error}. See docs/benchmarks.md.") from error
    if output == "json":
        click.echo(json.dumps(msgspec.to_builtins(result), indent=2))
    else:
        _print(result, published)


def _print(result: Result, published: dict[int, float]) -> None:
    table = Table(
        title=f"{result.list}, {result.batch} at once, {result.seeds} seeds, {result.seconds} s; ties: {result.tie_rule}"
    )
    for heading in ("ARRIVED %", "ALLOCATED %", "SD", "FGD %"):
        table.add_column(heading, justify="right")
    for demand, mean in result.alloc_pct.items():
        table.add_row(
            demand, f"{mean:.2f}", f"{result.sd[demand]:.2f}", f"{published.get(int(demand), float('nan')):.2f}"
        )
    Console().print(table)


if __name__ == "__main__":
    main()
