"""What the owner of a job is told whose task ran out of memory."""

from __future__ import annotations

import pytest

from reconciler.lifecycle.jobs.memory_advice import memory_advice, nice, rounded_memory
from reconciler.protocols.backend import MemoryUse, TaskStatus
from solver.model.cluster import DeviceId, Gpu, GpuType, Node, NodeName
from solver.model.quantities import Cpu, Instant, Memory
from solver.model.shape import Shape
from solver.model.workload import JobName, JobSpec, QueueName, TaskGroup

GI = 2**30
CUDA = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"


def node(name: str, memory: int, gpu_type: str, gpu_memory: int) -> Node:
    gpu = Gpu(DeviceId(f"{name}/0"), 0, memory=Memory(gpu_memory * GI))
    return Node(NodeName(name), "pool", Cpu(8_000), Memory(memory * GI), GpuType(gpu_type), (gpu,))


NODES = (
    node("a1", 128, "A100", 80),
    node("a2", 64, "A100", 80),
    node("h1", 256, "H200", 141),
    node("b1", 512, "B200", 192),
)


def advice(shape: Shape, memory: MemoryUse | None = None, log: str = "") -> str:
    spec = JobSpec(QueueName("q"), (TaskGroup("worker", 1, shape),))
    status = TaskStatus(JobName("job"), 1, "worker", 0, NodeName("a1"), "failed", Instant(0), 137, memory=memory)
    return memory_advice(status, spec, log, NODES)


def used(peak: float, limit: int, exceeded: bool = False) -> MemoryUse:
    return MemoryUse(Memory(int(peak * GI)), Memory(limit * GI), exceeded)


@pytest.mark.parametrize(
    ("shape", "memory", "log", "said"),
    [
        (Shape(memory=Memory(64 * GI)), used(76.8, 64), "", "It used 76.8Gi of the 64Gi that it asked for. Ask for `memory: 96Gi`"),
        (Shape(memory=Memory(64 * GI)), used(76.8, 64), "", "in group worker: 3 nodes can have that."),
        (Shape(memory=Memory(64 * GI), gpu_types=(GpuType("A100"),)), used(76.8, 64), "", "1 node can have that."),
        (Shape(memory=Memory(480 * GI)), used(500, 480), "", "No node has 640Gi: the largest has 512Gi. Let each"),
        (Shape(memory=Memory(480 * GI)), None, "", "not known (it asked for 480Gi)"),
        (Shape(gpus=1), None, "MemoryError", "not known (its shape asks for none)"),
        (Shape(gpus=1), None, CUDA, "Its A100 had no memory left (80Gi): use a smaller batch size, gradient checkpointing"),
        (Shape(gpus=1), None, CUDA, "; or ask for H200 (141Gi)."),
        (Shape(gpu_memory=Memory(10 * GI)), None, CUDA, "Its part of a GPU had no memory left: ask for a larger part"),
    ],
)  # fmt: skip
def test_it_says_what_to_change(shape: Shape, memory: MemoryUse | None, log: str, said: str) -> None:
    assert said in advice(shape, memory, log)


def test_how_it_ended_is_not_said_twice() -> None:
    assert advice(Shape(memory=Memory(64 * GI)), used(76.8, 64, exceeded=True)).startswith("Ask for `memory: 96Gi`")


def test_where_no_gpu_has_more_that_is_said() -> None:
    spec = JobSpec(QueueName("q"), (TaskGroup("worker", 1, Shape(gpus=1)),))
    status = TaskStatus(JobName("job"), 1, "worker", 0, NodeName("b1"), "failed", Instant(0), 1)
    assert "no GPU with more" in memory_advice(status, spec, CUDA, NODES)


@pytest.mark.parametrize(
    ("memory", "shown"),
    [(1, "128Mi"), (700 * 2**20, "768Mi"), (GI, "1Gi"), (GI + 1, "2Gi"), (65 * GI, "72Gi"), (513 * GI, "576Gi")],
)
def test_what_to_ask_for_is_what_a_person_would_write(memory: int, shown: str) -> None:
    assert str(nice(Memory(memory))) == shown


def test_what_was_used_is_rounded() -> None:
    assert [rounded_memory(Memory(size)) for size in (GI // 2, GI, GI * 3 // 2)] == ["512Mi", "1Gi", "1.5Gi"]
