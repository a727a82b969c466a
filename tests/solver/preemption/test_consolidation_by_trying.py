"""How often moving is missed: tried against every set of jobs and every place for each of them, on small clusters."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import combinations, product

from solver.checker.case import moving
from solver.model.cluster import DeviceId, NodeName
from solver.model.quantities import Duration, Instant
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName, QueueName, TaskPlacement
from solver.policy.harm import Protection
from solver.policy.policy import PriorityClass, Queue, SchedulingPolicy, policy_of
from solver.round.solve import solve
from tests.solver.worlds import HOUR_MS, job, node, quota_of

NODES, GPUS, MOST = 4, 4, 4

POLICY = policy_of(
    tuple(Queue(QueueName(name), quota=(quota_of("H100", NODES * GPUS),)) for name in ("owner", "others")),
    (PriorityClass("plain", protection=Protection(Duration(0))),),
    SchedulingPolicy("plain"),
)


def world(seed: int) -> tuple[Snapshot, list[tuple[int, int]], tuple[int, int]]:
    """Jobs of one task on nodes that are never full, as (node, GPUs), and a gang that waits, as (tasks, GPUs of each)."""
    chance, held = random.Random(seed), list[tuple[int, int]]()
    used = [0] * NODES
    for _ in range(chance.randint(3, 7)):
        on, gpus = chance.randrange(NODES), chance.choice([1, 1, 2, 3])
        if used[on] + gpus < GPUS:
            held.append((on, gpus))
            used[on] += gpus
    tasks, gpus = chance.choice([(1, 4), (1, 3), (2, 3), (2, 4)])
    at = [0] * NODES
    running = []
    for number, (on, count) in enumerate(held):
        running.append(runner(f"run-{number}", on, at[on], count, chance.randint(1, 9)))
        at[on] += count
    nodes = [node(f"n{number}", GPUS) for number in range(NODES)]
    return snapshot_of(Instant(0), nodes, [*running, job("wants", "owner", tasks, gpus)]), held, (tasks, gpus)


def runner(name: str, on: int, first: int, gpus: int, hours: int) -> Job:
    started = Instant(-HOUR_MS * hours)
    devices = tuple(DeviceId(f"n{on}/{first + index}") for index in range(gpus))
    placement = (TaskPlacement("worker", 0, NodeName(f"n{on}"), devices),)
    return Job(JobName(name), started, job(name, "others", 1, gpus).spec, "", "running", 1, started, placement)


def fewest(held: Sequence[tuple[int, int]], wanted: tuple[int, int]) -> int | None:
    """The least number of jobs that have to move so that the gang fits; None: no number suffices, up to the limit."""
    tasks, gpus = wanted
    for count in range(MOST + 1):
        for leaving in combinations(range(len(held)), count):
            staying = [GPUS] * NODES
            for number, (on, size) in enumerate(held):
                staying[on] -= size * (number not in leaving)
            for places in product(range(NODES), repeat=tasks + count):
                left = list(staying)
                sizes = [gpus] * tasks + [held[number][1] for number in leaving]
                for on, size in zip(places, sizes, strict=True):
                    left[on] -= size
                elsewhere = all(held[n][0] != on for n, on in zip(leaving, places[tasks:], strict=True))
                if min(left) >= 0 and elsewhere:
                    return count
    return None


def test_what_moving_finds_and_misses() -> None:
    """It finds nothing where nothing is; and misses little: room that only another's move would make, and odd sizes."""
    needed = found = more = 0
    for seed in range(150):
        snapshot, held, wanted = world(seed)
        least, moved = fewest(held, wanted), len(moving(solve(snapshot, POLICY, None)))
        assert not moved or (least is not None and moved >= least)
        needed += bool(least)
        found += bool(least) and bool(moved)
        more += bool(moved) and moved > (least or 0)
    assert needed > 40
    assert found >= 0.95 * needed
    assert more <= 0.1 * needed
