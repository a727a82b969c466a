"""A running gang that keeps to its rack takes back there what others borrowed of its guarantee, GPU for GPU, and nowhere else."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.checker.check import violations
from solver.milp.highs import optimise
from solver.milp.optimiser import Optimiser
from solver.model.cluster import DeviceId, Gpu, GpuType, Node, NodeName
from solver.model.quantities import Cpu, Instant, Memory, MilliGpu
from solver.model.shape import Shape
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName, JobSpec, QueueName, TaskGroup, TaskPlacement, TopologyRequest
from solver.plan.plan import Evict, Grow
from solver.policy.policy import Policy, Queue, Quota, policy_of
from solver.round.solve import solve
from tests.drawn import worlds

NOW = Instant.parse("2026-11-20T08:00:00Z")
H100 = GpuType("H100")
PER_NODE, RACKS, NODES_PER_RACK = 4, 2, 2


def rack_of(node: NodeName) -> str:
    return f"r{node[1]}"


def nodes() -> list[Node]:
    return [
        Node(
            name,
            "p",
            Cpu.parse(96),
            Memory.parse("1Ti"),
            H100,
            tuple(Gpu(DeviceId(f"{name}/{place}"), place) for place in range(PER_NODE)),
            rack=f"r{rack}",
        )
        for rack in range(RACKS)
        for number in range(NODES_PER_RACK)
        for name in (NodeName(f"n{rack}{number}"),)
    ]


def running(name: str, queue: str, spec: JobSpec, devices: list[str], age_min: int) -> Job:
    (group,) = spec.task_groups
    size = group.shape.gpus
    tasks = tuple(
        TaskPlacement("worker", place // size, NodeName(devices[place].split("/")[0]), ids)
        for place in range(0, len(devices), size)
        for ids in (tuple(map(DeviceId, devices[place : place + size])),)
    )
    since = Instant(NOW - age_min * 60_000)
    return Job(JobName(name), since, spec, phase="running", attempt=1, started_at=since, placement=tasks)


def spec_of(queue: str, gpus: int, replicas: int = 1, least: int | None = None, rack: bool = False) -> JobSpec:
    groups = (TaskGroup("worker", replicas, Shape(gpus), min_replicas=least),)
    return JobSpec(QueueName(queue), groups, topology=TopologyRequest(required="rack" if rack else None))


@st.composite
def crowded_racks(draw: st.DrawFn) -> tuple[Snapshot, Policy, int]:
    """A gang with one task, borrowed jobs of 1 and 2 GPUs, and what the gang may have. The rest of each node is free."""
    missing = draw(st.integers(1, 6))
    gang = spec_of("owner", 1, 1 + missing, 1, rack=True)
    jobs = [running("gang", "owner", gang, ["n00/0"], 100)]
    for node in ("n00", "n01", "n10", "n11"):
        place = 1 if node == "n00" else 0
        while place < PER_NODE:
            size = min(draw(st.sampled_from([0, 1, 1, 2, 2])), PER_NODE - place)
            if size:
                devices = [f"{node}/{number}" for number in range(place, place + size)]
                age = draw(st.integers(10, 600))  # long enough that nothing protects them
                jobs.append(running(f"j{node}{place}", "lent", spec_of("lent", size), devices, age))
            place += max(size, 1)
    guaranteed = draw(st.integers(1, 7))
    quotas = [("owner", guaranteed), ("lent", 0)]
    queues = (Queue(QueueName(name), quota=(Quota(H100, MilliGpu.gpus(gpus)),)) for name, gpus in quotas)
    return snapshot_of(NOW, nodes(), jobs), policy_of(tuple(queues)), min(missing, guaranteed - 1)


@pytest.mark.parametrize("optimiser", [optimise, None], ids=["program", "search"])
@worlds(100)
@given(case=crowded_racks())
def test_it_takes_back_in_its_rack_what_suffices_and_no_more(
    optimiser: Optimiser | None, case: tuple[Snapshot, Policy, int]
) -> None:
    snapshot, policy, most = case
    plan = solve(snapshot, policy, optimiser)
    assert violations(snapshot, policy, plan) == ()
    grown = sum(len(step.tasks) for step in plan.steps if isinstance(step, Grow))
    lent = {
        job.name: len(job.placement[0].devices)
        for job in snapshot.jobs
        if job.name != "gang" and rack_of(job.placement[0].node) == "r0"
    }
    free = NODES_PER_RACK * PER_NODE - 1 - sum(lent.values())
    needed = most - min(most, free)
    subsets = (chosen for count in range(len(lent) + 1) for chosen in combinations(lent, count))
    best = max(total for chosen in subsets if (total := sum(map(lent.__getitem__, chosen))) <= needed)
    leaving = [step.job for step in plan.steps if isinstance(step, Evict)]
    assert set(leaving) <= lent.keys()
    assert sum(lent[name] for name in leaving) == best
    assert grown >= min(most, free), "what is free needs nobody to leave"
