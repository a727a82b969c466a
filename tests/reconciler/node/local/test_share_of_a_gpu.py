"""What a task that shares its GPU is told of its part."""

from __future__ import annotations

import pytest

from reconciler.node.local.environment import task_environments
from reconciler.protocols.backend import StartGang
from solver.model.cluster import DeviceId, NodeName
from solver.model.quantities import Memory, MilliGpu
from solver.model.shape import Shape, SharingMode
from solver.model.workload import JobName, JobSpec, QueueName, TaskGroup, TaskPlacement

GPU = DeviceId("n1/3")
MIB = 2**20


@pytest.mark.parametrize(
    ("sharing", "memory", "told"),
    [
        (
            "mps",
            80 * 1024 * MIB,
            {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "12.5", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=10240M"},
        ),
        ("mps", 0, {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "12.5"}),
        ("time-slicing", 80 * 1024 * MIB, {}),
    ],
)
def test_a_share_sees_its_one_gpu_and_the_limits_of_mps(
    sharing: SharingMode, memory: int, told: dict[str, str]
) -> None:
    group = TaskGroup("worker", 1, Shape(gpu_fraction=MilliGpu(125)))
    task = TaskPlacement("worker", 0, NodeName("n1"), (GPU,), MilliGpu(125), sharing)
    order = StartGang(JobName("j"), 1, (task,), JobSpec(QueueName("q"), (group,), command=("true",)))
    ((_, environment),) = task_environments(order, {GPU: 3}, 1, {GPU: Memory(memory)})
    assert environment["CUDA_VISIBLE_DEVICES"] == "3"
    assert environment["QUORATE_GPU_SHARE"] == "0.125"
    assert {name: value for name, value in environment.items() if name.startswith("CUDA_MPS")} == told
