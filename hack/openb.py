"""The openb trace (Alibaba's GPU cluster of 2023) as nodes, jobs and an order of arrival, by the protocol of the FGD paper.

Q. Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent" (USENIX ATC
2023). Published at https://github.com/alibaba/clusterdata (cluster-trace-gpu-v2023).
"""

from __future__ import annotations

import csv
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from solver.model.cluster import DeviceId, Gpu, GpuType, Node, NodeName
from solver.model.quantities import MILLI_PER_GPU, Cpu, Instant, Memory, MilliGpu
from solver.model.shape import Shape
from solver.model.workload import Job, JobName, JobSpec, QueueName, TaskGroup
from solver.policy.division import SharingPolicy
from solver.policy.policy import Policy, Queue, policy_of

MIB = 2**20
POOL = "openb"
QUEUE = QueueName("openb")
ARRIVED = 1.3
"""GPUs asked for by all arrivals, in GPUs of the cluster."""

NODES_FILE = "openb/openb_node_list_gpu_node.csv"
PODS_FILE = "openb/openb_pod_list_{}.csv"
PUBLISHED_FILE = "fgd/published_mean_sd.csv"


def policy() -> Policy:
    """One queue without limits, whose GPUs may all be shared."""
    return policy_of((Queue(QUEUE),), sharing=(SharingPolicy("parts", (POOL,), "mps"),))


def read_nodes(traces: Path) -> tuple[Node, ...]:
    """The cluster, sorted by name. Raises OSError, KeyError and ValueError where the file is another."""
    return tuple(sorted((_node(row) for row in _rows(traces / NODES_FILE)), key=lambda node: node.name))


def read_pods(traces: Path, name: str, nodes: Sequence[Node]) -> tuple[JobSpec, ...]:
    """What the pods of a list ask for, sorted by the pods' names. Raises as `read_nodes`.

    The trace allows GPU types without preferring one. Here a list of types is one of preference: the most plentiful comes first.
    """
    gpus = Counter[GpuType]()
    for node in nodes:
        gpus[node.gpu_type] += len(node.gpus)
    rows = sorted(_rows(traces / PODS_FILE.format(name)), key=lambda row: row["name"])
    return tuple(_spec(row, gpus) for row in rows)


def arrivals(pods: Sequence[JobSpec], gpus: int, seed: int) -> tuple[Job, ...]:
    """Pods shuffled by the seed, then drawn with replacement until they ask for 1.3 times the GPUs of the cluster."""
    return tuple(_arrivals(pods, gpus, random.Random(seed)))


def _arrivals(pods: Sequence[JobSpec], gpus: int, chance: random.Random) -> Iterator[Job]:
    shuffled = list(pods)
    chance.shuffle(shuffled)
    asked, number = 0, 0
    while asked < ARRIVED * gpus * MILLI_PER_GPU:
        spec = shuffled[chance.randrange(len(shuffled))]
        yield Job(JobName(f"pod-{number:06}"), Instant(number), spec)
        asked, number = asked + spec.gpus, number + 1


def read_published(traces: Path, name: str, policy_name: str = "06-FGD") -> dict[int, float]:
    """Published GPU allocation in per cent by arrived demand in per cent."""
    return {
        int(row["arrived_pct"]): float(row["mean"])
        for row in _rows(traces / PUBLISHED_FILE)
        if (row["metric"], row["workload"], row["policy"]) == ("gpu_alloc_pct", f"openb_pod_list_{name}", policy_name)
    }


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def _node(row: dict[str, str]) -> Node:
    gpus = tuple(Gpu(DeviceId(f"{row['sn']}/{index}"), index) for index in range(int(row["gpu"])))
    memory = Memory(int(row["memory_mib"]) * MIB)
    return Node(NodeName(row["sn"]), POOL, Cpu(int(row["cpu_milli"])), memory, GpuType(row["model"]), gpus)


def _spec(row: dict[str, str], gpus: Counter[GpuType]) -> JobSpec:
    number, milli = int(row["num_gpu"]), int(row["gpu_milli"])
    allowed = {GpuType(name) for name in (row.get("gpu_spec") or "").split("|") if name}
    is_part = number == 1 and milli < MILLI_PER_GPU
    shape = Shape(
        0 if is_part else number,
        tuple(sorted(allowed, key=lambda name: (-gpus[name], name))),
        Cpu(int(row["cpu_milli"])),
        Memory(int(row["memory_mib"]) * MIB),
        MilliGpu(milli) if is_part else None,
    )
    return JobSpec(QUEUE, (TaskGroup("pod", 1, shape),))
