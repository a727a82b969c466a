"""Free GPUs that no known shape could use where they are."""

from __future__ import annotations

import pytest

from solver.model.cluster import DeviceId, Gpu, GpuType, Node, NodeName
from solver.model.quantities import Cpu, Instant, Memory
from solver.model.shape import Shape
from solver.model.snapshot import snapshot_of
from solver.model.workload import Job, JobName, JobSpec, QueueName, TaskGroup
from solver.placement.stranded_gpus import stranded_gpus
from solver.policy.policy import Queue, policy_of

POLICY = policy_of((Queue(QueueName("q")),))
H100, A100 = GpuType("H100"), GpuType("A100")


def node(name: str, gpus: int, gpu_type: GpuType = H100, cpu: int = 64) -> Node:
    held = tuple(Gpu(DeviceId(f"{name}/{number}"), number) for number in range(gpus))
    return Node(NodeName(name), "pool", Cpu(cpu * 1_000), Memory(2**40), gpu_type, held)


def job(name: str, shape: Shape) -> Job:
    return Job(JobName(name), Instant(0), JobSpec(QueueName("q"), (TaskGroup("worker", 1, shape),)))


@pytest.mark.parametrize(
    ("shapes", "stranded"),
    [
        ([], {}),
        ([Shape(gpus=1)], {H100: 0}),
        ([Shape(gpus=2)], {H100: 1}),
        ([Shape(gpus=4)], {H100: 3}),
        ([Shape(gpus=2), Shape(gpus=3)], {H100: 0}),
        ([Shape(gpus=1, cpu=Cpu(40_000))], {H100: 2}),
        ([Shape(gpus=1, gpu_types=(A100,))], {}),
        ([Shape(gpus=0)], {}),
    ],
)
def test_three_free_gpus_on_a_node(shapes: list[Shape], stranded: dict[GpuType, int]) -> None:
    jobs = [job(f"job-{number}", shape) for number, shape in enumerate(shapes)]
    assert stranded_gpus(snapshot_of(Instant(0), [node("n", 3)], jobs), POLICY) == stranded


def test_each_node_and_type_counts_by_itself() -> None:
    nodes = [node("a", 4), node("b", 3), node("c", 1, A100)]
    found = stranded_gpus(snapshot_of(Instant(0), nodes, [job("job", Shape(gpus=4))]), POLICY)
    assert found == {A100: 1, H100: 3}


def test_what_another_type_is_asked_for_uses_none_of_this_one() -> None:
    nodes = [node("h", 3), node("a", 3, A100)]
    jobs = [job("large", Shape(gpus=4, gpu_types=(H100,))), job("small", Shape(gpus=1, gpu_types=(A100,)))]
    assert stranded_gpus(snapshot_of(Instant(0), nodes, jobs), POLICY) == {A100: 0, H100: 3}
