"""Jobs of all sizes that want CPU and memory, with GPUs and without, in tiny worlds, drawn: no plan is refused, and each rests."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from solver.checker.check import violations
from solver.model.cluster import Node, NodeName
from solver.model.quantities import Cpu, Duration, Instant, Memory
from solver.model.shape import Shape
from solver.model.snapshot import snapshot_of
from solver.model.workload import Job, JobName, JobSpec, QueueName, TaskGroup, TaskPlacement
from solver.policy.harm import Protection
from solver.policy.host_share import CpuQuota, MemoryQuota
from solver.policy.policy import PriorityClass, Queue, policy_of
from tests.drawn import parted
from tests.solver.laws.judge import greedy, production
from tests.solver.laws.loop import course_of
from tests.solver.laws.worlds import World, world_of

GIB = 2**30
FEW, WORLDS = 30, 400
"""How many are tried by `make test`, and in all."""

CLASSES = tuple(
    PriorityClass(name, value, protection=Protection(Duration(0)))
    for name, value in (("low", -1), ("plain", 0), ("top", 2))
)
PARENTS = {"b": None, "x": None, "x1": "x", "x2": "x"}


def drawn(seed: int) -> World:
    """A node of 3 GPUs and one without; 96 cores and 256 GiB on each."""
    random = Random(seed)
    whole = world_of("nodes n1=3").snapshot.nodes[0]
    nodes = [
        msgspec.structs.replace(whole, cpu=Cpu(96_000), memory=Memory(256 * GIB)),
        Node(NodeName("c1"), "cpus", Cpu(96_000), Memory(256 * GIB)),
    ]
    free = {"n1": [96, 256], "c1": [96, 256]}
    jobs, gpus = list[Job](), [device.id for device in whole.gpus]
    while gpus and random.random() < 0.8:
        held, cores = gpus[: random.randint(1, 2)], random.choice((12, 36, 48))
        gpus = gpus[len(held) :]
        if free["n1"][0] >= cores:
            free["n1"] = [free["n1"][0] - cores, free["n1"][1] - cores]
            task = TaskPlacement("worker", 0, NodeName("n1"), tuple(held))
            jobs.append(
                _job(f"g{len(jobs)}", random, Shape(len(held), cpu=Cpu(cores * 1000), memory=_gib(cores)), task)
            )
    for number in range(random.randint(1, 6)):
        cores, node = random.choice((8, 12, 24, 48, 80)), random.choice(("n1", "c1"))
        memory = random.choice((8, cores, 3 * cores))
        fits = free[node][0] >= cores and free[node][1] >= memory and random.random() < 0.5
        if fits:
            free[node] = [free[node][0] - cores, free[node][1] - memory]
        task_or_none = TaskPlacement("worker", 0, NodeName(node), ()) if fits else None
        shape = Shape(0, cpu=Cpu(cores * 1000), memory=_gib(memory))
        jobs.append(_job(f"c{number}", random, shape, task_or_none))
    return World(snapshot_of(Instant(0), nodes, jobs), policy_of(tuple(queues(random)), CLASSES))


def queues(random: Random) -> list[Queue]:
    """Two levels, with rows of CPU and memory here and there."""
    sure = {name: random.choice((0, 0, 24, 48)) for name in ("b", "x1", "x2")}
    sure["x"] = sure["x1"] + sure["x2"] + random.choice((0, 0, 24))
    return [
        Queue(
            QueueName(name),
            QueueName(parent) if parent else None,
            weight=random.choice((1, 1, 2)),
            host_quota=(CpuQuota(Cpu(sure[name] * 1000)), MemoryQuota(_gib(sure[name])))
            if random.random() < 0.7
            else (),
        )
        for name, parent in PARENTS.items()
    ]


def _gib(count: int) -> Memory:
    return Memory(count * GIB)


def _job(name: str, random: Random, shape: Shape, task: TaskPlacement | None) -> Job:
    known = random.choice(("low", "plain", "top"))
    spec = JobSpec(QueueName(random.choice(("b", "x1", "x2"))), (TaskGroup("worker", 1, shape),), known)
    began = Instant(-random.randint(1, 500) * 60_000)
    if task is None:
        return Job(JobName(name), began, spec)
    return Job(JobName(name), began, spec, "", "running", 1, began, (task,))


@pytest.mark.parametrize("seeds", parted(FEW, WORLDS))
@pytest.mark.parametrize("decide", [greedy, production])
def test_no_plan_is_refused_and_each_world_comes_to_rest(decide: object, seeds: range) -> None:
    bad = {}
    for seed in seeds:
        course = course_of(drawn(seed), decide)  # type: ignore[arg-type]
        found = [str(one) for held in course.rounds for one in violations(held.snapshot, held.policy, held.plan)]
        found += [] if course.rests else ["does not come to rest"]
        if found:
            bad[seed] = found
    assert bad == {}
