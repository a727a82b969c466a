"""CPU and memory divided among jobs without GPUs in tiny worlds, drawn: what queues hold in the end, and what is fair.

All jobs are alike and the tree has two levels, so that what is fair can be handed out job by job. Judged by sums of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from random import Random

import msgspec
import pytest

from solver.checker.check import violations
from solver.model.cluster import Node, NodeName
from solver.model.quantities import Cpu, Instant, Memory
from solver.model.shape import Shape
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName, JobSpec, QueueName, TaskGroup, TaskPlacement
from solver.policy.host_share import CpuQuota, MemoryQuota
from solver.policy.policy import Policy, Queue, SchedulingPolicy, policy_of
from tests.drawn import parted
from tests.solver.laws.judge import greedy, production
from tests.solver.laws.loop import Course, course_of
from tests.solver.laws.worlds import PLAIN, World, world_of

CORES = 12
"""Of each job; with them it has as many GiB."""

GIB = 2**30
FEW, WORLDS = 10, 150
"""How many are tried by `make test`, and in all."""

BELOW: Mapping[str, Sequence[str]] = {"": ("x", "y"), "x": ("a", "b"), "y": ("c", "d")}


def drawn(seed: int) -> World:
    """One node with GPUs and one without, 8 jobs' cores in all; queues two levels deep."""
    random = Random(seed)
    whole = world_of("nodes n1=4").snapshot.nodes[0]
    nodes = [
        msgspec.structs.replace(whole, cpu=Cpu(4 * CORES * 1000), memory=Memory(4 * CORES * GIB)),
        Node(NodeName("c1"), "cpus", Cpu(4 * CORES * 1000), Memory(4 * CORES * GIB)),
    ]
    jobs, free = list[Job](), {"n1": 4, "c1": 4}
    for number in range(random.randint(0, 8)):
        node = random.choice([name for name, left in free.items() if left])
        free[node] -= 1
        jobs.append(_job(f"r{number}", random.choice("aabcd"), 100 + random.randint(0, 9) * 10 + number, node))
    waiting = random.randint(1, 8)
    jobs += [_job(f"w{number}", random.choice("abbcd"), 50 - number, None) for number in range(waiting)]
    guaranteed = {name: random.choice((0, 0, 1, 2)) for name in "abcd"}
    queues = [_queue("x", None, max(guaranteed["a"] + guaranteed["b"], random.randint(0, 3)), random)]
    queues += [_queue("y", None, guaranteed["c"] + guaranteed["d"], random)]
    queues += [_queue(name, parent, guaranteed[name], random) for parent in "xy" for name in BELOW[parent]]
    scheduling = SchedulingPolicy(reclaim=random.choice(("fair-share", "fair-share", "guaranteed")))
    return World(snapshot_of(Instant(0), nodes, jobs), policy_of(tuple(queues), (PLAIN,), scheduling))


def _job(name: str, queue: str, minutes: int, node: str | None) -> Job:
    spec = JobSpec(
        QueueName(queue), (TaskGroup("worker", 1, Shape(0, cpu=Cpu(CORES * 1000), memory=Memory(CORES * GIB))),)
    )
    began = Instant(-minutes * 60_000)
    if node is None:
        return Job(JobName(name), began, spec)
    return Job(JobName(name), began, spec, "", "running", 1, began, (TaskPlacement("worker", 0, NodeName(node), ()),))


def _queue(name: str, parent: str | None, guaranteed: int, random: Random) -> Queue:
    rows = CpuQuota(Cpu(guaranteed * CORES * 1000)), MemoryQuota(Memory(guaranteed * CORES * GIB))
    return Queue(
        QueueName(name), QueueName(parent) if parent else None, weight=random.choice((1, 1, 2)), host_quota=rows
    )


def guaranteed_jobs(policy: Policy, queue: str) -> int:
    """How many jobs fit in what it is guaranteed."""
    found = policy.queue(queue)
    return int(found.host_quota[0].guaranteed or 0) // (CORES * 1000) if found else 0


def handed_out(world: World) -> dict[str, float]:
    """Jobs that each queue should have: what is guaranteed, then a hundredth of a job at a time to whom has least by weight."""
    demand: Counter[str] = Counter(str(job.spec.queue) for job in world.snapshot.jobs)
    for parent in "xy":
        demand[parent] = sum(demand[name] for name in BELOW[parent])
    given: dict[str, float] = {"": 8.0}
    for parent, names in BELOW.items():
        sure = {name: min(demand[name], guaranteed_jobs(world.policy, name)) for name in names}
        more, left = dict.fromkeys(names, 0), round(100 * (given[parent] - sum(sure.values())))
        while left > 0:
            hungry = [name for name in names if 100 * sure[name] + more[name] < 100 * demand[name]]
            if not hungry:
                break
            more[min(hungry, key=lambda name: (more[name] / _weight(world.policy, name), name))] += 1
            left -= 1
        given |= {name: sure[name] + more[name] / 100 for name in names}
    return given


def _weight(policy: Policy, name: str) -> int:
    found = policy.queue(name)
    return found.weight if found else 1


def problems(course: Course) -> Iterator[str]:
    """What no reading of the rules allows."""
    world = course.world
    if not course.rests:
        yield "does not come to rest"
    left = [step.job for round_ in course.rounds for step in round_.evictions]
    yield from (f"{name} leaves twice" for name in sorted({name for name in left if left.count(name) > 1}))
    for round_ in course.rounds:
        yield from (f"{found}" for found in violations(round_.snapshot, round_.policy, round_.plan))
    held = Counter(str(job.spec.queue) for job in course.end.jobs if job.placement)
    wanted = Counter(str(job.spec.queue) for job in course.end.jobs)
    if sum(held.values()) != min(8, sum(wanted.values())):
        yield f"{sum(held.values())} jobs run"
    fair = handed_out(world)
    for name in "abcd":
        parent = "x" if name in "ab" else "y"
        # What a queue is guaranteed within what its organisation is.
        sure = min(guaranteed_jobs(world.policy, name), wanted[name])
        if held[name] < sure:
            yield f"{name} has {held[name]} jobs, and is guaranteed {sure} below {parent}"
        if world.policy.scheduling.reclaim == "fair-share" and held[name] <= fair[name] - 1:
            yield f"{name} has {held[name]} jobs of {fair[name]}"


@pytest.mark.parametrize("seeds", parted(FEW, WORLDS))
@pytest.mark.parametrize("decide", [greedy, production])
def test_each_queue_comes_to_hold_what_is_guaranteed_and_fair(decide: object, seeds: range) -> None:
    bad = {seed: found for seed in seeds if (found := [*problems(course_of(drawn(seed), decide))])}  # type: ignore[arg-type]
    assert bad == {}


def with_kept_back(seed: int) -> World:
    """The same worlds, in which guarantees are lent in part, and single users are limited."""
    world, random = drawn(seed), Random(seed)

    def kept(queue: Queue) -> Queue:
        guaranteed = guaranteed_jobs(world.policy, queue.name)
        lent, most = random.randint(0, guaranteed), random.choice((None, None, 2, 3))
        rows = (
            CpuQuota(
                Cpu(guaranteed * CORES * 1000),
                lendable=Cpu(lent * CORES * 1000),
                per_user=None if most is None else Cpu(most * CORES * 1000),
            ),
            MemoryQuota(Memory(guaranteed * CORES * GIB)),
        )
        return msgspec.structs.replace(queue, host_quota=rows)

    jobs = [msgspec.structs.replace(job, user=random.choice(("ada", "bob"))) for job in world.snapshot.jobs]
    policy = policy_of(tuple(map(kept, world.policy.queues)), (PLAIN,), world.policy.scheduling)
    return World(snapshot_of(Instant(0), world.snapshot.nodes, jobs), policy)


def unkept(course: Course) -> Iterator[str]:
    """What is kept back and taken all the same, and users who hold more than they may and did not before."""
    before, after = (_kept_sums(snapshot, course.world.policy) for snapshot in (course.world.snapshot, course.end))
    if after[0] > max(8, before[0]):
        yield f"{after[0]} jobs' cores are taken or kept back, of 8"
    for (queue, user), held in after[1].items():
        row = course.world.policy.queue(queue)
        most = row.host_quota[0].per_user if row else None
        if most is not None and held * CORES * 1000 > max(int(most), before[1][queue, user] * CORES * 1000):
            yield f"{user} has {held} jobs in {queue}"


def _kept_sums(snapshot: Snapshot, policy: Policy) -> tuple[float, Counter[tuple[str, str]]]:
    """What roots weigh, in jobs; and what each user holds in each queue."""
    held, users = Counter[str](), Counter[tuple[str, str]]()
    for job in snapshot.jobs:
        if job.placement:
            held[str(job.spec.queue)] += 1
            for queue in (str(job.spec.queue), "x" if job.spec.queue in "ab" else "y"):
                users[queue, job.user] += 1

    def kept(name: str) -> float:
        found = policy.queue(name)
        row = found.host_quota[0] if found else CpuQuota()
        return (int(row.guaranteed or 0) - int(row.lendable or 0)) / (CORES * 1000)

    roots = (max(sum(max(held[name], kept(name)) for name in BELOW[root]), kept(root)) for root in "xy")
    return sum(roots), users


@pytest.mark.parametrize("seeds", parted(FEW, WORLDS))
@pytest.mark.parametrize("decide", [greedy, production])
def test_what_is_not_lent_stays_free_and_users_keep_to_their_limits(decide: object, seeds: range) -> None:
    bad = {}
    for seed in seeds:
        course = course_of(with_kept_back(seed), decide)  # type: ignore[arg-type]
        found = [str(one) for held in course.rounds for one in violations(held.snapshot, held.policy, held.plan)]
        left = [step.job for held in course.rounds for step in held.evictions]
        found += [f"{name} leaves twice" for name in set(left) if left.count(name) > 1]
        found += [*unkept(course), *([] if course.rests else ["does not come to rest"])]
        if found:
            bad[seed] = found
    assert bad == {}
