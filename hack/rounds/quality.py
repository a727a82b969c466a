"""What rounds of a seeded cluster serve, and at what price: the first one, later ones with churn, and quiet ones at last."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import mean
from time import process_time
from typing import Final, Literal

import msgspec

from hack.rounds.cases import CHURN, with_limit
from hack.rounds.gaps import gaps_of
from hack.rounds.onward import Onward
from hack.rounds.timing import Layer, quantile
from hack.rounds.world import World
from solver.checker.alarm import findings
from solver.checker.check import violations
from solver.milp.highs import optimise
from solver.milp.optimiser import Effort, Optimiser, Program, Solution
from solver.milp.preemption_decision import PROGRAM_GPUS_MAX
from solver.model.arrays import Floats
from solver.model.round_cache import RoundCache
from solver.model.snapshot import Snapshot
from solver.model.workload import JobName
from solver.placement.starts import ENTITLED
from solver.plan.plan import Certificate, Evict, Plan, Reserve, Shrink, Unreserve
from solver.policy.policy import Policy
from solver.round.solve import solve

LIMIT_S: Final = 60.0
"""Seconds for a program, which none should need: what a clock cuts short is not the same twice."""

QUIET_MAX: Final = 20
"""Rounds without churn after which a world counts as one that does not come to rest."""

Chooser = Literal["program", "search"]
"""What chooses victims. Which jobs start on what is free is a program's answer either way."""


@dataclass(frozen=True, slots=True)
class QualityCase:
    """Clusters of a size: `full`: which parts of their GPUs are held; `seeds`: as many, for each of these parts."""

    gpus: int
    pending: int
    full: tuple[float, ...] = (0.93,)
    seeds: int = 1

    @property
    def choosers(self) -> tuple[Chooser, ...]:
        """Where a program chooses victims search is compared with it."""
        return ("program", "search") if self.gpus <= PROGRAM_GPUS_MAX else ("search",)

    def smaller(self, divisor: int) -> QualityCase:
        """The same with so many times fewer GPUs and jobs."""
        return QualityCase(max(64, self.gpus // divisor), max(10, self.pending // divisor), self.full, self.seeds)


CASES: Final[Mapping[str, QualityCase]] = {
    "512": QualityCase(512, 125, (0.93, 0.99), 5),
    "4k": QualityCase(4_096, 1_000, seeds=2),
    "16k": QualityCase(16_384, 2_000),
    "100k": QualityCase(100_000, 5_000),
}


class RoundQuality(msgspec.Struct, frozen=True, kw_only=True):
    """One round.

    `layers`: GPUs started or promised inside guarantees, as the certificate weighs them, each with its bound. `evicted`, `shrunk`
    and `moved`: jobs. `lost_entitled_gpu_h`, `lost_fair_gpu_h`: work lost for guarantees, and for fair shares. `gpus_in_use`: once
    all steps are done. `cpu_s`: of this process, for solving alone. `findings`: of the checker's alarm, by rule.
    """

    layers: tuple[Layer, ...]
    evicted: int
    shrunk: int
    moved: int
    lost_entitled_gpu_h: float
    lost_fair_gpu_h: float
    gpus_in_use: float
    cpu_s: float
    violations: int
    findings: dict[str, int]


class LaterQuality(msgspec.Struct, frozen=True, kw_only=True):
    """Rounds after the first.

    `jobs_evicted`: different ones; `most_of_one_job`: evictions of the job that was evicted most often. `quiet_rounds`: until a
    round had nothing to do once nothing ended or came any more; None: none in `QUIET_MAX`. `repeated`: evictions meanwhile of jobs
    that had been evicted meanwhile before.
    """

    rounds: int
    lost_gpu_h: float
    evictions: int
    jobs_evicted: int
    most_of_one_job: int
    gpus_in_use: float
    cpu_p50_s: float
    violations: int
    findings: dict[str, int]
    quiet_rounds: int | None
    quiet_evictions: int
    repeated: int


class ClusterQuality(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster, decided one way; `later`: None where the first round is all."""

    case: str
    chooser: Chooser
    seed: int
    full: float
    gpus: int
    first: RoundQuality
    later: LaterQuality | None


@dataclass(slots=True)
class _Rounds:
    """The rounds of a cluster, one after the other, with what they cost so far."""

    policy: Policy
    optimiser: Optimiser
    kept: RoundCache = field(default_factory=RoundCache)
    evictions: Counter[JobName] = field(default_factory=Counter)

    def decide(self, snapshot: Snapshot) -> tuple[Plan, RoundQuality]:
        """The next round."""
        began = process_time()
        plan = solve(snapshot, self.policy, self.optimiser, self.kept)
        cpu_s = process_time() - began
        moved, evicted = _moved_and_evicted(plan)
        self.evictions.update(evicted)
        found = RoundQuality(
            layers=tuple(_layers(plan.certificate)),
            evicted=len(evicted),
            shrunk=sum(isinstance(step, Shrink) for step in plan.steps),
            moved=len(moved),
            lost_entitled_gpu_h=_lost_gpu_h(plan.certificate, "entitled"),
            lost_fair_gpu_h=_lost_gpu_h(plan.certificate, "fair"),
            gpus_in_use=gaps_of(snapshot, plan).gpus_in_use,
            cpu_s=round(cpu_s, 2),
            violations=len(violations(snapshot, self.policy, plan)),
            findings=dict(Counter(finding.rule for finding in findings(snapshot, self.policy, plan))),
        )
        return plan, found


def measure(name: str, case: QualityCase, seed: int, full: float, chooser: Chooser, rounds: int) -> ClusterQuality:
    """Decide a cluster's first round, and so many later ones. No job asks for parts of GPUs, so that the program can state all."""
    world = World(case.gpus, case.pending, full, seed, parts=False)
    snapshot = world.snapshot
    decided = _Rounds(with_limit(world.policy, LIMIT_S), optimise if chooser == "program" else _starts_alone)
    plan, first = decided.decide(snapshot)
    return ClusterQuality(
        case=name,
        chooser=chooser,
        seed=seed,
        full=full,
        gpus=sum(len(node.gpus) for node in snapshot.nodes),
        first=first,
        later=_later(world, decided, snapshot, plan, rounds) if rounds else None,
    )


def _starts_alone(program: Program, start: Floats, effort: Effort) -> Solution | None:
    """An Optimiser that refuses the programs that choose victims, so that search does."""
    return None if effort.nodes_max else optimise(program, start, effort)


def _later(world: World, decided: _Rounds, snapshot: Snapshot, plan: Plan, rounds: int) -> LaterQuality:
    decided.evictions.clear()
    workload = world.workload(random.Random(world.seed + 2), "later")
    onward, busy = Onward(workload, random.Random(world.seed + 3), CHURN), list[RoundQuality]()
    for _ in range(rounds):
        snapshot = onward.after(snapshot, plan)
        plan, found = decided.decide(snapshot)
        busy.append(found)
    evictions = decided.evictions.copy()
    decided.evictions.clear()
    quiet, rests = Onward(workload, random.Random(0), churn=0.0), False
    count = 0
    while not rests and count < QUIET_MAX:
        snapshot = quiet.after(snapshot, plan)
        plan, _ = decided.decide(snapshot)
        rests, count = _is_at_rest(plan), count + 1
    return LaterQuality(
        rounds=rounds,
        lost_gpu_h=round(sum(each.lost_entitled_gpu_h + each.lost_fair_gpu_h for each in busy), 1),
        evictions=evictions.total(),
        jobs_evicted=len(evictions),
        most_of_one_job=max(evictions.values(), default=0),
        gpus_in_use=round(mean(each.gpus_in_use for each in busy), 1),
        cpu_p50_s=quantile(sorted(each.cpu_s for each in busy), 0.5) or 0.0,
        violations=sum(each.violations for each in busy),
        findings=added(each.findings for each in busy),
        quiet_rounds=count if rests else None,
        quiet_evictions=decided.evictions.total(),
        repeated=decided.evictions.total() - len(decided.evictions),
    )


def added(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The counts of all, by their keys."""
    total = Counter[str]()
    for each in counts:
        total.update(each)
    return dict(sorted(total.items()))


def _moved_and_evicted(plan: Plan) -> tuple[list[JobName], list[JobName]]:
    evicts = [step for step in plan.steps if isinstance(step, Evict)]
    moved = [step.job for step in evicts if step.means == "move"]
    return moved, [step.job for step in evicts if step.means != "move"]


def _layers(certificate: Certificate) -> Iterable[Layer]:
    """Minima inside guarantees; growth has layers of its own."""
    for layer in certificate.layers:
        if layer.name.startswith(ENTITLED) and not layer.name.endswith(".growth"):
            yield Layer(layer.name.removeprefix(ENTITLED), round(layer.value, 1), round(layer.bound, 1))


def _lost_gpu_h(certificate: Certificate, tier: str) -> float:
    harm = sum(-layer.value for layer in certificate.layers if layer.name.startswith(f"{tier}-harm."))
    return round(harm, 1) + 0.0


def _is_at_rest(plan: Plan) -> bool:
    return all(isinstance(step, Reserve | Unreserve) for step in plan.steps)
