"""CPU and memory beside GPUs in tiny worlds, drawn: who leaves for whom, and that GPUs do not stand idle for want of cores.

Judged by sums of its own, not by those of the solver or the checker.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import msgspec
import pytest

from solver.checker.check import violations
from solver.model.quantities import Cpu
from solver.model.snapshot import Snapshot
from solver.model.workload import Job
from solver.plan.plan import Evict, Plan, Shrink
from solver.policy.host_share import CpuQuota
from solver.policy.policy import Policy, policy_of
from tests.drawn import parted
from tests.solver.laws.judge import greedy, production
from tests.solver.laws.loop import Course, course_of
from tests.solver.laws.worlds import World, world_of

CORES = 96
"""Of each node."""

FEW, WORLDS = 30, 120
"""How many are tried by `make test`, and in all."""


def drawn(seed: int) -> World:
    """A world of two or three nodes of 4 GPUs, most of whose cores are held."""
    random = Random(seed)
    nodes = [f"n{n}" for n in range(random.randint(1, 3))]
    gpus, cores = dict.fromkeys(nodes, 4), dict.fromkeys(nodes, CORES)
    share = len(nodes) * 4 // 2
    lines = ["nodes " + " ".join(f"{node}=4" for node in nodes), "class low -1", "class high 1"]
    lines += [f"queue a {random.choice((share, share, 0))}", f"queue b {random.choice((0, share))}", "queue c 0"]
    for number in range(random.randint(1, 5)):
        node, queue = random.choice(nodes), random.choice("abc")
        has = random.choice((0, 0, 0, 1, 2))
        asked = random.choice((6, 12, 24, 48, 84)) if not has else random.choice((2, 24 * has, 48, 84))
        if gpus[node] >= has and cores[node] >= asked:
            gpus[node] -= has
            cores[node] -= asked
            value = random.choice(("low", "", "high"))
            lines.append(f"run r{number} {queue} {has}@{node} for {random.randint(1, 900)}m {value} cpu={asked}")
    for number in range(random.randint(1, 3)):
        has = random.choice((0, 1, 2, 4))
        asked = random.choice((8, 40, 84)) if not has else random.choice((4 * has, 20 * has, 24 * has, 60))
        size = f"2x{has}" if has and random.random() < 0.2 else str(has)
        lines.append(
            f"wait w{number} {random.choice('aabc')} {size} for {50 - number}m {random.choice(('', 'high'))} cpu={asked}"
        )
    return world_of("\n".join(lines))


def cores_of(job: Job) -> int:
    """Of one task."""
    return int(job.spec.task_groups[0].shape.cpu) // 1000


def gpus_of(job: Job) -> int:
    """Of one task."""
    return job.spec.task_groups[0].shape.gpus


def asks_beyond(job: Job) -> bool:
    """Whether a job has, or wants, more cores than its GPUs carry: 24 each on nodes of 4."""
    return cores_of(job) > 24 * gpus_of(job)


def held(snapshot: Snapshot, queue: str) -> int:
    """GPUs of a queue's running jobs."""
    return sum(gpus_of(job) * len(job.placement) for job in snapshot.jobs if job.spec.queue == queue)


def guaranteed(policy: Policy, queue: str) -> int:
    """GPUs."""
    found = policy.queue(queue)
    return int(found.quota[0].guaranteed or 0) // 1000 if found else 0


def problems(course: Course) -> Iterator[str]:
    """What no reading of the rules allows."""
    if not course.rests:
        yield "does not come to rest"
    left = [step.job for round_ in course.rounds for step in round_.evictions]
    yield from (f"{name} leaves twice" for name in sorted({name for name in left if left.count(name) > 1}))
    for round_ in course.rounds:
        yield from (f"{found}" for found in violations(round_.snapshot, round_.policy, round_.plan))
        yield from _unlawful(round_.snapshot, round_.policy, round_.plan)
    yield from _idle(course.end, course.world.policy)


def _unlawful(snapshot: Snapshot, policy: Policy, plan: Plan) -> Iterator[str]:
    jobs = {job.name: job for job in snapshot.jobs}
    for step in plan.steps:
        if not isinstance(step, Evict | Shrink) or step.beneficiary is None or step.means == "move":
            continue
        victim, taker = jobs[step.job], jobs[step.beneficiary]
        same = victim.spec.queue == taker.spec.queue
        if not gpus_of(taker) and (gpus_of(victim) or not same):
            yield f"{victim.name} leaves for {taker.name}, which has no GPUs"
        inside = held(snapshot, victim.spec.queue) <= guaranteed(policy, victim.spec.queue)
        if not same and inside and gpus_of(victim) and (asks_beyond(taker) or not asks_beyond(victim)):
            yield f"{victim.name} is inside its guarantee, and leaves for {taker.name}"


def _idle(snapshot: Snapshot, policy: Policy) -> Iterator[str]:
    """Jobs that are inside their guarantee, and would fit beside what runs on GPUs once all others' work without GPUs was gone."""
    for job in snapshot.jobs:
        count, gpus, cores, queue = job.spec.tasks, gpus_of(job), cores_of(job), job.spec.queue
        if (
            job.placement
            or not gpus
            or asks_beyond(job)
            or held(snapshot, queue) + count * gpus > guaranteed(policy, queue)
        ):
            continue
        slots = 0
        for node in snapshot.nodes:
            there = [other for other in snapshot.jobs for task in other.placement if task.node == node.name]
            free = len(node.gpus) - sum(map(gpus_of, there))
            stays = [other for other in there if gpus_of(other) or other.spec.queue == queue]
            slots += min(free // gpus, (CORES - sum(map(cores_of, stays))) // cores)
        if slots >= count:
            yield f"{job.name} waits beside idle GPUs for cores that jobs without GPUs hold"


@pytest.mark.parametrize("seeds", parted(FEW, WORLDS))
@pytest.mark.parametrize("decide", [greedy, production])
def test_gpus_get_the_cores_that_they_carry_and_no_more(decide: object, seeds: range) -> None:
    bad = {seed: found for seed in seeds if (found := [*problems(course_of(drawn(seed), decide))])}  # type: ignore[arg-type]
    assert bad == {}


def with_host_quota(seed: int) -> World:
    """The same worlds, in which queues are guaranteed cores, or may hold no more than so many."""
    world, random = drawn(seed), Random(seed)

    def row() -> CpuQuota:
        guaranteed = Cpu(1000 * random.choice((0, 24, 48, 96))) if random.random() < 0.7 else None
        most = Cpu(1000 * random.choice((24, 60, 96, 150))) if random.random() < 0.6 else None
        return CpuQuota(
            guaranteed, most, per_user=Cpu(1000 * random.choice((60, 96, 200))) if random.random() < 0.3 else None
        )

    queues = tuple(msgspec.structs.replace(queue, host_quota=(row(),)) for queue in world.policy.queues)
    return World(world.snapshot, policy_of(queues, world.policy.priority_classes, world.policy.scheduling))


def above_max(course: Course) -> Iterator[str]:
    """Queues that hold more cores in the end than their max, and had not from the beginning."""
    for queue in course.world.policy.queues:
        (row,) = queue.host_quota
        before, after = (
            sum(cores_of(job) * len(job.placement) for job in snapshot.jobs if job.spec.queue == queue.name)
            for snapshot in (course.world.snapshot, course.end)
        )
        # All jobs are those of one user.
        for most in (row.max, row.per_user):
            if most is not None and after > max(before, int(most) // 1000):
                yield f"{queue.name} holds {after} cores of {most}"


@pytest.mark.parametrize("seeds", parted(FEW, WORLDS))
@pytest.mark.parametrize("decide", [greedy, production])
def test_queues_hold_the_cores_that_they_may(decide: object, seeds: range) -> None:
    bad = {}
    for seed in seeds:
        course = course_of(with_host_quota(seed), decide)  # type: ignore[arg-type]
        found = [str(one) for held in course.rounds for one in violations(held.snapshot, held.policy, held.plan)]
        left = [step.job for held in course.rounds for step in held.evictions]
        found += [f"{name} leaves twice" for name in set(left) if left.count(name) > 1]
        found += [*above_max(course), *([] if course.rests else ["does not come to rest"])]
        if found:
            bad[seed] = found
    assert bad == {}


def crowded(seed: int, most_nodes: int) -> World:
    """A world with all kinds of jobs: gangs, elastic ones, work without GPUs on several nodes, parts of GPUs, protections."""
    random = Random(seed)
    nodes = [f"n{n:02}" for n in range(random.randint(most_nodes // 2 + 1, most_nodes))]
    each = random.choice((2, 4))
    total, share = each * len(nodes), CORES // each
    free, cores = dict.fromkeys(nodes, each), dict.fromkeys(nodes, CORES)
    lines = ["nodes " + " ".join(f"{node}={each}" for node in nodes), f"rules moves={random.choice((0, 4))} shared"]
    lines += ["class low -1", "class high 1", "class fixed 0 fixed", "class safe 0 minRuntime=20m"]
    lines += [f"queue x {total // 2}", f"queue a in x {random.choice((total // 2, 0))}", "queue b in x 0"]
    lines += [f"queue c {random.choice((0, total // 2, '-'))}"]
    for number in range(random.randint(2, 4 * len(nodes))):
        gpus = random.choice((0, 0, 1, 1, 2))
        asked = random.choice((6, 12, 24, 40)) if not gpus else random.choice((share * gpus, share * gpus // 2, 60))
        count = random.choice((1, 1, 2, 3)) if gpus < 2 else 1
        chosen = random.sample(nodes, min(count, len(nodes)))
        places = [node for node in chosen if free[node] >= gpus and cores[node] >= asked]
        for node in places:
            free[node] -= gpus
            cores[node] -= asked
        least = "1-" if len(places) > 1 and random.random() < 0.5 else ""
        job = f"r{number} {random.choice('abc')} {least}{len(places)}x{gpus}@{','.join(places)}"
        age, value = f"{random.randint(1, 900)}.{number:03}m", random.choice(("low", "", "high", "fixed", "safe"))
        lines += [f"run {job} for {age} {value} cpu={asked}"] if places else []
    for number in range(random.randint(1, 1 + len(nodes))):
        size = random.choice(("0", "1", "1", "2", "0.5", "2x1", "1-3x1", f"2x{each}"))
        part = 0.5 if size == "0.5" else int(size.rpartition("x")[2])
        asked = round(min(90, share * part + random.choice((-4, 0, 0, 14)))) if part else random.choice((8, 40, 70))
        age, value = f"{random.randint(1, 200)}.{number:03}m", random.choice(("", "high", "fixed", "low"))
        lines.append(f"wait w{number} {random.choice('abc')} {size} for {age} {value} cpu={asked}")
    return world_of("\n".join(lines))


CROWDED = [*((seed, 4) for seed in range(60)), *((seed, 12) for seed in (*range(6), 16))]
FEW_CROWDED = [*CROWDED[:15], *CROWDED[-2:]]


@pytest.mark.parametrize(
    "some",
    [
        pytest.param(FEW_CROWDED, id="few"),
        pytest.param([each for each in CROWDED if each not in FEW_CROWDED], marks=pytest.mark.thorough, id="others"),
    ],
)
@pytest.mark.parametrize("decide", [greedy, production])
def test_plans_of_crowded_worlds_are_lawful_and_they_come_to_rest(decide: object, some: list[tuple[int, int]]) -> None:
    bad = {}
    for seed, most_nodes in some:
        course = course_of(crowded(seed, most_nodes), decide)  # type: ignore[arg-type]
        found = [str(one) for held in course.rounds for one in violations(held.snapshot, held.policy, held.plan)]
        if found or not course.rests:
            bad[seed, most_nodes] = found
    assert bad == {}


def test_the_worlds_have_what_the_rules_speak_of() -> None:
    courses = [course_of(drawn(seed), greedy) for seed in range(WORLDS)]
    steps = [(round_, step) for course in courses for round_ in course.rounds for step in round_.evictions]
    without = [s for r, s in steps if not gpus_of(next(job for job in r.snapshot.jobs if job.name == s.job))]
    assert len(without) >= 10
    assert {s.means for _, s in steps} >= {"reclaim", "preempt", "straddle"}


def test_no_more_leave_in_a_round_than_it_allows_beside_a_guarantee_that_is_overdue() -> None:
    snapshot, policy = world_of("""
        nodes n1=4
        class low -1
        queue b -
        queue c -
        queue x 6
        queue x1 in x -
        queue x2 in x 3
        run builds c 0@n1 for 126m low cpu=24
        run other c 1@n1 for 518.4m low cpu=60
        run first b 1@n1 for 9.3m low
        wait due x2 3 for 8.2m low cpu=16
        wait overdue x1 4 for 109.3m low
    """)
    evictions = msgspec.structs.replace(policy.scheduling.evictions, per_round=1)
    policy = msgspec.structs.replace(policy, scheduling=msgspec.structs.replace(policy.scheduling, evictions=evictions))
    plan = production(snapshot, policy)
    assert violations(snapshot, policy, plan) == ()
    assert [step.job for step in plan.steps if isinstance(step, Evict)] == ["other"]
