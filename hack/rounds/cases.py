"""What each case of `python -m hack.bench_round` is."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

import msgspec

from hack.rounds.deciding import deciding
from hack.rounds.nodes import H100
from hack.rounds.onward import Onward
from hack.rounds.timing import Figures, Timed, figures, timed
from hack.rounds.workload import DAY_S, NOW, Workload, leaves
from hack.rounds.world import World
from reconciler.control.control import Solve
from reconciler.control.garbage_collection import seldom
from solver.model.quantities import Duration, Instant
from solver.model.shape import Shape
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName, JobSpec, TaskGroup
from solver.plan.plan import Bind, Nominate, Plan
from solver.policy.policy import Policy

CHURN = 0.017
ARRIVALS_PER_S = 100
LARGEST = JobName("largest")


@dataclass(frozen=True, slots=True)
class Case:
    """`rounds` after the first; `arrivals`: beside a stream of them, of which some can't wait; `largest`: a gang of 4,096 GPUs.

    `pace_s`: how long each round counts as for jobs that come meanwhile, so that the same come in each run; None: as it took.
    """

    gpus: int
    pending: int
    full: float = 0.93
    rounds: int = 0
    arrivals: bool = False
    largest: bool = False
    pace_s: float | None = None


CASES = {
    "cold": Case(100_000, 5_000),
    "warm": Case(100_000, 5_000, rounds=100),
    "deep": Case(100_000, 20_000),
    "victims": Case(100_000, 5_000, full=0.99),
    "16k": Case(16_384, 2_000),
    "4k": Case(4_096, 1_000),
    "arrival": Case(4_096, 200, full=0.99, rounds=20, arrivals=True),
    "gang4096": Case(100_000, 5_000, largest=True),
}


def measure(name: str, case: Case, seed: int, limit_s: float | None) -> Figures:
    """Time the rounds of a case. `limit_s`: for the program in each round; None: there is none, and the greedy answer stands."""
    seldom()  # as `quorate run` does
    world = World(case.gpus, case.pending, case.full, seed)
    policy, snapshot = with_limit(world.policy, limit_s), world.snapshot
    if case.largest:
        snapshot = _with_largest(snapshot, policy)
    workload, chance = world.workload(random.Random(seed + 2), "later"), random.Random(seed + 3)
    with deciding(with_program=limit_s is not None) as by:
        plan, first = timed(snapshot, policy, by.solve)
        rounds, more = [first], {"tasks_of_largest": float(_tasks_of(LARGEST, plan))} if case.largest else {}
        if case.arrivals:
            more = arrivals(case, snapshot, plan, policy, workload, rounds, by.solve)
        else:
            onward, now = Onward(workload, chance, CHURN), snapshot
            for _ in range(case.rounds):
                now = onward.after(now, plan)
                plan, found = timed(now, policy, by.solve)
                rounds.append(found)
        return figures(name, seed, snapshot, rounds, by.largest, more)


def of_snapshot(snapshot: Snapshot, policy: Policy, seed: int, limit_s: float | None) -> Figures:
    """Time one round of a snapshot that was given."""
    seldom()
    with deciding(with_program=limit_s is not None) as by:
        _, found = timed(snapshot, with_limit(policy, limit_s), by.solve)
        return figures("file", seed, snapshot, [found], by.largest, {})


def with_limit(policy: Policy, limit_s: float | None) -> Policy:
    """The policy, in which the program has so long; None: there is none, and it stays as it is."""
    if limit_s is None:
        return policy
    limits = msgspec.structs.replace(policy.scheduling.solver, time_limit=Duration(int(1000 * limit_s)))
    return msgspec.structs.replace(policy, scheduling=msgspec.structs.replace(policy.scheduling, solver=limits))


def arrivals(
    case: Case,
    snapshot: Snapshot,
    plan: Plan,
    policy: Policy,
    workload: Workload,
    rounds: list[Timed],
    solve: Solve,
) -> dict[str, float]:
    """Rounds one right after the other while jobs keep coming: how long those that can't wait wait for their decision.

    The clock of jobs is that of the rounds themselves: what comes while one is decided is seen by the next.
    """
    onward, waits = Onward(workload, random.Random(0), 0.0), list[float]()
    now_s = case.pace_s or rounds[0].total_s
    came_s = 0.0
    for number in range(case.rounds):
        at = Instant(NOW + int(now_s * 1000) + 1)
        new = list(_storm(workload, came_s, now_s, number))
        came_s = now_s
        before = onward.after(snapshot, plan)
        snapshot = snapshot_of(at, before.nodes, [*before.jobs, *(job for job, _ in new)])
        plan, found = timed(snapshot, policy, solve)
        rounds.append(found)
        now_s += case.pace_s or found.total_s
        waits += [now_s - since_s for job, since_s in new if job.name.startswith("urgent-")]
    waits.sort()
    return {
        "urgent": float(len(waits)),
        "urgent_p50_s": round(waits[len(waits) // 2], 3),
        "urgent_p99_s": round(waits[-max(1, len(waits) // 100)], 3),
    }


def _storm(workload: Workload, from_s: float, until_s: float, number: int) -> Iterator[tuple[Job, float]]:
    """What comes between two moments, one of them a task of one GPU that can't wait, each with when it came."""
    many = max(1, int((until_s - from_s) * ARRIVALS_PER_S))
    for each in range(many):
        since_s = from_s + (until_s - from_s) * each / many
        job = workload.waiting()
        if each == many // 2:
            queue = job.spec.queue
            group = TaskGroup("worker", 1, Shape(1, (H100,)))
            job = Job(JobName(f"urgent-{number:04}"), NOW, JobSpec(queue, (group,), "inference"), "someone")
        yield msgspec.structs.replace(job, submitted_at=Instant(NOW + int(since_s * 1000))), since_s


def _with_largest(snapshot: Snapshot, policy: Policy) -> Snapshot:
    """Beside all others a gang of 512 nodes, in the queue that is guaranteed most of its type, that has waited longest."""
    lowest = {name for _, name in leaves()}
    guaranteed = {queue.name: quota.guaranteed or 0 for queue in policy.queues if (quota := queue.quota_for(H100))}
    queue = max(lowest & guaranteed.keys(), key=lambda name: (guaranteed[name], name))
    gang = JobSpec(queue, (TaskGroup("worker", 512, Shape(8, (H100,))),), "high")
    largest = Job(LARGEST, Instant(NOW - DAY_S * 1000), gang, "someone")
    return snapshot_of(snapshot.time, snapshot.nodes, [*snapshot.jobs, largest])


def _tasks_of(job: JobName, plan: Plan) -> int:
    return sum(len(step.tasks) for step in plan.steps if isinstance(step, Bind | Nominate) and step.job == job)


def smaller(case: Case, divisor: int) -> Case:
    """The same with so many times fewer GPUs and jobs."""
    rounds = max(3, case.rounds // divisor) if case.rounds else 0
    return replace(case, gpus=max(512, case.gpus // divisor), pending=max(10, case.pending // divisor), rounds=rounds)
