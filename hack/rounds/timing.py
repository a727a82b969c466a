"""One round timed, with all that the benchmark says of it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from functools import reduce
from time import perf_counter

import click
import msgspec

from hack.memory import peak_mb
from hack.rounds.deciding import Size
from hack.rounds.gaps import Gaps, gaps_of, worse
from reconciler.control.control import Solve
from reconciler.supervisor.processes import descendants
from solver.checker.check import conclusion_violations, deed_violations
from solver.model.snapshot import Snapshot
from solver.plan.plan import Bind, Certificate, Nominate, Plan
from solver.policy.policy import Policy


class Layer(msgspec.Struct, frozen=True):
    """What a layer reached, and what no plan can exceed, in GPUs or GPU-hours."""

    name: str
    value: float
    bound: float


class Timed(msgspec.Struct, frozen=True):
    """A round, from snapshot to checked plan with devices. Nobody keeps plans: memory is that of rounds, not of the benchmark.

    `to_deed_s`: until what it does may be done; the rest of the seconds are for what it says.
    `steps`: how many of each kind; `placed_tasks`: tasks that got their devices, now or once others have left.
    """

    certificate: Certificate
    steps: dict[str, int]
    placed_tasks: int
    to_deed_s: float
    solve_s: float
    check_s: float
    checker_violations: int
    gaps: Gaps

    @property
    def total_s(self) -> float:
        """Both together."""
        return self.solve_s + self.check_s


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """A case of the benchmark.

    Seconds of the wall; `to_deed_s`: until what the round does may be done; `warm_*`: of the rounds after the first, None where
    there were none; of their gaps the worst. `rss_mb`: the most memory of this process and of the program's, added up; of the
    latter since it began, should it have had to begin anew.
    """

    case: str
    gpus: int
    nodes: int
    running: int
    pending: int
    seed: int
    cold_s: float
    solve_s: float
    check_s: float
    to_deed_s: float
    warm_p50_s: float | None
    warm_p99_s: float | None
    warm_to_deed_p50_s: float | None
    warm_to_deed_p99_s: float | None
    layers: tuple[Layer, ...]
    gaps: Gaps
    warm_gaps: Gaps | None
    stage: str
    rss_mb: int
    columns: int
    rows: int
    nonzeros: int
    placed_tasks_per_s: float
    checker_violations: int
    steps: dict[str, int]
    more: dict[str, float] = {}


def timed(snapshot: Snapshot, policy: Policy, solve: Solve) -> tuple[Plan, Timed]:
    """Solve and check once."""
    began = perf_counter()
    solved = solve(snapshot, policy)
    decided = perf_counter()
    found = deed_violations(snapshot, policy, solved.deed.plan)
    ready = perf_counter()
    plan = solved.conclude().plan
    explained = perf_counter()
    found += conclusion_violations(snapshot, policy, plan)
    checked = perf_counter()
    for violation in found:
        click.echo(f"the checker refuses: {violation}", err=True)
    solve_s, check_s = decided - began + explained - ready, ready - decided + checked - explained
    steps = dict(sorted(Counter(type(step).__name__.lower() for step in plan.steps).items()))
    placed = sum(len(step.tasks) for step in plan.steps if isinstance(step, Bind | Nominate))
    gaps = gaps_of(snapshot, plan)
    return plan, Timed(plan.certificate, steps, placed, ready - began, solve_s, check_s, len(found), gaps)


def figures(
    case: str, seed: int, snapshot: Snapshot, rounds: Sequence[Timed], program: Size, more: dict[str, float]
) -> Figures:
    """What to report of the rounds of a case, the first of which began with this snapshot, while the program's process is there."""
    first, *others = rounds
    later = sorted(known.total_s for known in others)
    deeds = sorted(known.to_deed_s for known in others)
    certificate = first.certificate
    return Figures(
        case=case,
        gpus=sum(len(node.gpus) for node in snapshot.nodes),
        nodes=len(snapshot.nodes),
        running=sum(job.phase == "running" for job in snapshot.jobs),
        pending=len(snapshot.pending),
        seed=seed,
        cold_s=round(first.total_s, 3),
        solve_s=round(first.solve_s, 3),
        check_s=round(first.check_s, 3),
        to_deed_s=round(first.to_deed_s, 3),
        warm_p50_s=quantile(later, 0.5),
        warm_p99_s=quantile(later, 0.99),
        warm_to_deed_p50_s=quantile(deeds, 0.5),
        warm_to_deed_p99_s=quantile(deeds, 0.99),
        layers=tuple(Layer(layer.name, layer.value, layer.bound) for layer in certificate.layers),
        gaps=first.gaps,
        warm_gaps=reduce(worse, (known.gaps for known in others)) if others else None,
        stage=certificate.stage,
        rss_mb=peak_mb(os.getpid(), *descendants()),
        columns=program.columns,
        rows=program.rows,
        nonzeros=program.nonzeros,
        placed_tasks_per_s=round(first.placed_tasks / first.total_s, 1),
        checker_violations=sum(known.checker_violations for known in rounds),
        steps=first.steps,
        more=more,
    )


def quantile(ascending: Sequence[float], share: float) -> float | None:
    """The smallest value that at least this share of them does not exceed."""
    if not ascending:
        return None
    return round(ascending[max(0, -int(-share * len(ascending) // 1) - 1)], 3)
