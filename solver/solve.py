"""One round: a frozen snapshot and a frozen policy in, a plan out. No clock, no I/O; the optimiser is handed in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from solver.admission import Admission, Gate
from solver.certify import better, entitled_unproven, layer_results, loose_bounds
from solver.conclude import point_of, starts_of
from solver.forecast import estimates
from solver.greedy import greedy
from solver.placement import place
from solver.plan.plan import Bind, Certificate, Inadmissible, Plan, Release, Runs, Stage, Starts, Step, Verdict, Waits
from solver.program.cells import Cells
from solver.program.classes import JobClass, classes_of
from solver.program.formulate import Formulation
from solver.program.optimiser import Effort, Optimiser, Program, Solution
from solver.repartition import repartitions
from solver.rules.demand import Candidate, Option, SubLayer, in_order
from solver.rules.entitlement import Headroom, Shares, shares_of
from solver.rules.fairshare import demand_of, live_gpus, with_fair_shares
from solver.rules.partitioning import pool_rules
from solver.rules.policy import Policy, SolverLimits
from solver.rules.sharing import sharing_of
from solver.rules.tree import QueueTree
from solver.rules.users import UserRoom
from solver.starts import Start, layer_values
from solver.verdicts import Waiting
from solver.world.cluster import Level
from solver.world.quantities import MilliGpu
from solver.world.room import Room
from solver.world.snapshot import Snapshot
from solver.world.workload import Job, JobName


@dataclass(frozen=True, slots=True)
class Answer:
    """What a round decided, and how."""

    starts: tuple[Start, ...]
    certificate: Certificate


def solve(snapshot: Snapshot, policy: Policy, optimiser: Optimiser | None) -> Plan:
    """Decide one round. Without an optimiser the greedy answer stands, and the certificate says so."""
    shares, admissions = standing(snapshot, policy)
    candidates = in_order(competing(snapshot, admissions), policy, shares, snapshot.time)
    sharing = sharing_of(policy, shares.tree, snapshot.nodes)
    room = Room.of(snapshot, sharing.domain, pool_rules(policy, snapshot))
    answer = decide(candidates, room, shares, policy.scheduling.solver, optimiser)
    explained = _explained(snapshot, policy, admissions, candidates, room, shares, answer)
    return Plan(
        snapshot.digest,
        policy.digest,
        (*_releases(snapshot), *repartitions(room, answer.starts), *_binds(policy, answer.starts)),
        tuple(_verdicts(snapshot, admissions, explained)),
        answer.certificate,
    )


def standing(snapshot: Snapshot, policy: Policy) -> tuple[Shares, dict[JobName, Admission]]:
    """Where the queues stand before anything is decided: their shares, and which pending jobs may ever start."""
    shares = shares_of(snapshot, QueueTree.of(policy))
    sharing = sharing_of(policy, shares.tree, snapshot.nodes)
    empty = Room.empty(snapshot.nodes, mig=pool_rules(policy, snapshot).unlimited())
    gate = Gate(policy, shares, empty, sharing)
    admissions = {job.name: gate.admit(job) for job in snapshot.pending}
    wanted = demand_of(competing(snapshot, admissions))
    return with_fair_shares(shares, live_gpus(snapshot), wanted), admissions


def competing(snapshot: Snapshot, admissions: dict[JobName, Admission]) -> list[tuple[Job, tuple[Option, ...]]]:
    """The pending jobs that take part in the round: they could start one day, and no queue holds them back."""
    judged = [(job, admissions[job.name]) for job in snapshot.pending]
    return [(job, admission.options) for job, admission in judged if admission.options and not admission.holds]


def decide(
    candidates: Sequence[Candidate],
    room: Room,
    shares: Shares,
    limits: SolverLimits,
    optimiser: Optimiser | None,
) -> Answer:
    """Choose who starts: the greedy answer, or the program's where that is better in the first layer in which they differ."""
    able = able_to_start(candidates, room, shares)
    sub_layers = tuple(sorted({candidate.sub_layer for candidate in able}))
    classes = classes_of(able)
    bounds = loose_bounds(classes, sub_layers, shares)
    first = greedy(able, room.copy(), shares)
    values = layer_values(first, sub_layers, shares)
    if optimiser is None or (len(first) == len(able) and not better(bounds, values)):
        stage: Stage = "greedy" if able else "none"
        return Answer(first, _certificate(stage, values, sub_layers, bounds, None, limits))
    formulation = Formulation(classes, Cells(room, cell_level(classes)), shares, sub_layers)
    program = formulation.state()
    effort = Effort(limits.gap, limits.time_limit.seconds, limits.seed)
    solution = optimiser(program, point_of(first, formulation, program, room), effort)
    if solution is not None:
        second = starts_of(solution.values, formulation, room, able, shares)
        improved = layer_values(second, sub_layers, shares)
        if better(improved, values):
            return Answer(second, _certificate("mip", improved, sub_layers, bounds, solution, limits, program))
    return Answer(first, _certificate("greedy", values, sub_layers, bounds, solution, limits, program))


def able_to_start(candidates: Sequence[Candidate], room: Room, shares: Shares) -> tuple[Candidate, ...]:
    """Candidates that could start if they were alone. The others can't in any answer, since starts only take room."""
    headroom, users = Headroom(shares), UserRoom(shares.users)

    def alone(candidate: Candidate) -> bool:
        job, spec = candidate.job, candidate.job.spec
        return any(
            not headroom.blocking(spec.queue, option.charge)
            and not users.blocking(job, option.charge)
            and place(room.copy(), spec, option) is not None
            for option in candidate.options
        )

    firsts = {candidate.likeness: candidate for candidate in reversed(candidates)}
    able = {likeness for likeness, candidate in firsts.items() if alone(candidate)}
    return tuple(candidate for candidate in candidates if candidate.likeness in able)


def cell_level(classes: Sequence[JobClass]) -> Level:
    """Blocks, if any gang asks for a block or closer; whole pools do otherwise."""
    asked = {level for known in classes for level in (known.topology.required, known.topology.preferred)}
    return "block" if asked & {"island", "rack", "block"} else "pool"


def _certificate(
    stage: Stage,
    values: Sequence[float],
    sub_layers: Sequence[SubLayer],
    bounds: Sequence[float],
    solution: Solution | None,
    limits: SolverLimits,
    program: Program | None = None,
) -> Certificate:
    results = layer_results(values, sub_layers, bounds, solution, limits.gap)
    return Certificate(
        stage,
        results,
        entitled_unproven(results),
        solution.solver if solution else "greedy",
        limits.seed,
        len(program.lower) if program else 0,
        len(program.row_lower) if program else 0,
    )


def _releases(snapshot: Snapshot) -> Iterable[Step]:
    """Before binds: what a gang that never became ready gives back is free in the next round, not in this one."""
    stopping = {(intent.job, intent.attempt) for intent in snapshot.in_flight.intents if intent.kind == "stop"}
    for intent in snapshot.in_flight.intents:
        overdue = intent.kind == "start" and intent.deadline <= snapshot.time
        if overdue and (intent.job, intent.attempt) not in stopping:
            yield Release(intent.job, intent.attempt)


def _binds(policy: Policy, starts: Sequence[Start]) -> Iterable[Step]:
    for start in starts:
        job = start.candidate.job
        yield Bind(
            job.name,
            job.attempt + 1,
            start.placed.tasks,
            policy.scheduling.start_deadline,
            policy.time_limit(job),
        )


def _explained(
    snapshot: Snapshot,
    policy: Policy,
    admissions: dict[JobName, Admission],
    candidates: Sequence[Candidate],
    room: Room,
    shares: Shares,
    answer: Answer,
) -> dict[JobName, Verdict]:
    after = room.copy()
    headroom = Headroom(shares)
    verdicts: dict[JobName, Verdict] = {}
    for start in answer.starts:
        start.take_from(after)
        job, gpus = start.candidate.job, MilliGpu(sum(start.option.charge.values()))
        entitled = MilliGpu(headroom.take(start.queue, start.option.charge))
        verdicts[job.name] = Starts(job.name, job.spec.queue, gpus, entitled)
    why = Waiting(shares, room, after, answer.starts, answer.certificate.stage)
    waiting = [candidate for candidate in candidates if candidate.job.name not in verdicts]
    when = estimates(snapshot, policy, shares, waiting, answer.starts, after)
    for candidate in waiting:
        job = candidate.job
        verdicts[job.name] = Waits(job.name, job.spec.queue, why.reasons(candidate), when.get(job.name))
    for job in snapshot.pending:
        admission = admissions[job.name]
        if admission.options and admission.holds:
            verdicts[job.name] = Waits(job.name, job.spec.queue, why.reasons_on_hold(job, admission))
    return verdicts


def _verdicts(
    snapshot: Snapshot, admissions: dict[JobName, Admission], explained: dict[JobName, Verdict]
) -> Iterable[Verdict]:
    for job in snapshot.jobs:
        if job.phase != "pending":
            yield Runs(job.name, job.spec.queue)
        elif admissions[job.name].options:
            yield explained[job.name]
        else:
            yield Inadmissible(job.name, job.spec.queue, admissions[job.name].reasons)
