"""Random small worlds for property tests, and the shorthand that builds clusters and jobs in a line."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from hypothesis import strategies as st

from solver.rules.policy import Policy, PriorityClass, Queue, Quota, policy_of
from solver.world.cluster import DeviceId, Gpu, GpuType, Level, Node, NodeName
from solver.world.quantities import Cpu, Instant, Memory, MilliGpu
from solver.world.snapshot import Snapshot, snapshot_of
from solver.world.workload import Job, JobName, JobSpec, QueueName, Shape, TaskGroup, TaskPlacement, TopologyRequest

GIB = 2**30
TYPES = (GpuType("H100"), GpuType("A100"))


def node(
    name: str, gpus: int, gpu_type: str = "H100", *, rack: str = "", block: str = "", cpu: int = 96, pool: str = ""
) -> Node:
    """A healthy node with `gpus` devices named NODE/0 and up, 96 cores and 1 TiB."""
    devices = tuple(Gpu(DeviceId(f"{name}/{index}"), index) for index in range(gpus))
    return Node(
        NodeName(name),
        pool or gpu_type.lower(),
        Cpu(cpu * 1000),
        Memory(1024 * GIB),
        GpuType(gpu_type),
        devices,
        rack=rack,
        block=block,
    )


def job(
    name: str,
    queue: str,
    tasks: int,
    gpus: int,
    *,
    types: Sequence[str] = (),
    required: Level | None = None,
    preferred: Level | None = None,
    cpu: int = 0,
    submitted: int = 0,
    priority_class: str = "",
) -> Job:
    """A pending job with one task group."""
    shape = Shape(gpus, tuple(GpuType(t) for t in types), Cpu(cpu * 1000))
    spec = JobSpec(
        QueueName(queue),
        (TaskGroup("worker", tasks, shape),),
        priority_class,
        TopologyRequest(required, preferred),
    )
    return Job(JobName(name), Instant(submitted), spec)


CLASSES = (
    PriorityClass("inference", 1000, "latency-critical"),
    PriorityClass("training", 100, "standard"),
    PriorityClass("batch", 10, "preemptible"),
)


HOUR_MS = 3_600_000
USERS = ("", "ada", "bob")


def quota_of(
    gpu_type: str, guaranteed: int | None = None, most: int | None = None, per_user: int | None = None
) -> Quota:
    """A quota in whole GPUs."""
    limits = [None if count is None else MilliGpu.gpus(count) for count in (guaranteed, most, per_user)]
    return Quota(GpuType(gpu_type), limits[0], limits[1], limits[2])


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    """A tree org -> {left, right -> {r1, r2}} with guarantees and ceilings, some unset, some zero; at times with gates."""

    def seldom() -> bool:
        return draw(st.integers(0, 15)) == 15

    def quota() -> tuple[Quota, ...]:
        entries = []
        for gpu_type in TYPES:
            guaranteed = draw(st.none() | st.integers(0, 8))
            ceiling = draw(st.none() | st.integers(guaranteed or 0, 16))
            per_user = draw(st.integers(0, 8)) if seldom() else None
            entries.append(quota_of(gpu_type, guaranteed, ceiling, per_user))
        return tuple(entries)

    def queue(name: str, parent: str | None) -> Queue:
        return Queue(
            QueueName(name),
            QueueName(parent) if parent else None,
            quota(),
            draw(st.integers(1, 3)),
            "Hold" if seldom() else "None",
            draw(st.sampled_from([("training", "batch"), ("inference",)])) if seldom() else None,
        )

    aging = draw(st.sampled_from([0.0, 1.0, 3.0]))
    return policy_of(
        (queue("org", None), queue("left", "org"), queue("right", "org"), queue("r1", "right"), queue("r2", "right")),
        tuple(msgspec.structs.replace(known, aging_per_hour=aging) for known in CLASSES),
    )


@st.composite
def jobs(draw: st.DrawFn, number: int, sizes: Sequence[int] = (1, 2, 4)) -> Job:
    """A pending job of one or two groups."""
    groups = draw(st.integers(1, 2)) if draw(st.booleans()) else 1
    shapes = [
        Shape(
            draw(st.sampled_from(sizes)),
            draw(st.sampled_from([(), TYPES[:1], TYPES[1:], TYPES, TYPES[::-1]])),
            Cpu(1000 * draw(st.sampled_from([0, 0, 1, 8]))),
        )
        for _ in range(groups)
    ]
    spec = JobSpec(
        QueueName(draw(st.sampled_from(["left", "r1", "r2"]))),
        tuple(TaskGroup(f"g{index}", draw(st.integers(1, 3)), shape) for index, shape in enumerate(shapes)),
        draw(st.sampled_from([known.name for known in CLASSES])),
        TopologyRequest(
            draw(st.sampled_from([None, None, "rack", "block"])), draw(st.sampled_from([None, None, "island", "rack"]))
        ),
    )
    return Job(
        JobName(f"job-{number}"), Instant(-HOUR_MS * draw(st.integers(0, 4))), spec, draw(st.sampled_from(USERS))
    )


@st.composite
def snapshots(draw: st.DrawFn, nodes_max: int = 6, jobs_max: int = 7, sizes: Sequence[int] = (1, 2, 4)) -> Snapshot:
    """A cluster of two types with some nodes closed or partly held by running jobs, and a few pending gangs."""
    nodes = []
    for index in range(draw(st.integers(1, nodes_max))):
        gpu_type = draw(st.sampled_from(TYPES))
        rack, block = f"{gpu_type}-r{index // 2}", f"{gpu_type}-b{index // 4}"
        made = node(f"n{index}", draw(st.sampled_from([2, 4])), gpu_type, rack=rack, block=block, cpu=16)
        nodes.append(made)
    running = [_runner(n, draw(st.integers(1, len(n.gpus)))) for n in nodes if draw(st.integers(0, 4)) == 0]
    pending = [draw(jobs(number, sizes)) for number in range(draw(st.integers(0, jobs_max)))]
    return snapshot_of(Instant(1000), nodes, [*running, *pending])


def _runner(on: Node, gpus: int) -> Job:
    spec = JobSpec(QueueName("left"), (TaskGroup("worker", 1, Shape(gpus)),), "training")
    placement = (TaskPlacement("worker", 0, on.name, tuple(gpu.id for gpu in on.gpus[:gpus])),)
    return Job(JobName(f"run-{on.name}"), Instant(0), spec, USERS[1], "running", 1, Instant(0), placement)
