"""What a task that has parts of GPUs is told of them."""

from __future__ import annotations

import pytest

from reconciler.node.local.environment import task_environments
from reconciler.node.local.gpus import mig_name
from reconciler.protocols.backend import StartGang
from solver.model.cluster import DeviceId, MigInstance, NodeName
from solver.model.quantities import Memory, MilliGpu
from solver.model.shape import Shape, SharingMode
from solver.model.workload import JobName, JobSpec, MigSlot, QueueName, TaskGroup, TaskPlacement

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


def test_a_task_of_several_instances_is_told_all_of_them() -> None:
    """CUDA sees the first one of a process: each process of the task sets its own, from this list."""
    slots = [MigSlot(DeviceId(gpu), MigInstance("1g.10gb", 0), MilliGpu(125)) for gpu in ("n1/0", "n1/1")]
    task = TaskPlacement("worker", 0, NodeName("n1")).on_slots(slots)
    group = TaskGroup("worker", 1, Shape(mig="1g.10gb", devices=2))
    order = StartGang(JobName("j"), 1, (task,), JobSpec(QueueName("q"), (group,), command=("true",)))
    called = {device: mig_name(device) for device in task.devices}
    ((_, environment),) = task_environments(order, called, 1, {})
    assert environment["CUDA_VISIBLE_DEVICES"] == ",".join(called.values())
    assert len(set(called.values())) == 2
