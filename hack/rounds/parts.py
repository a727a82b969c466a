"""Puts the jobs of a seeded cluster that need less than a GPU where they run: on MIG instances, and on GPUs that are shared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from hack.rounds.nodes import L40S, POOLS_IN_PARTS
from hack.rounds.workload import Workload
from solver.model.cluster import Gpu, GpuType, MigInstance, Node
from solver.model.mig import cost_milli_gpu, mig_model
from solver.model.mig_layout import find_profile, model_of_type
from solver.model.quantities import MilliGpu
from solver.model.workload import Job, MigSlot, TaskPlacement

Found = tuple[Node, Gpu, MigInstance]


def in_parts(nodes: Sequence[Node], workload: Workload) -> Iterator[Job]:
    """Jobs on all there is of the pools for parts of GPUs."""
    free: dict[tuple[GpuType, str], list[Found]] = {}
    for node in nodes:
        for gpu in node.gpus:
            for instance in gpu.instances or ():
                free.setdefault((node.gpu_type, instance.profile), []).append((node, gpu, instance))
            if node.pool == POOLS_IN_PARTS[L40S]:
                yield _on_one(node, gpu, workload.drawn_on_fractions())
    for (gpu_type, profile), left in sorted(free.items()):
        while left:
            job = workload.drawn_on_instances(gpu_type, profile, most=len(left))
            (group,) = job.spec.task_groups
            taken = [left.pop() for _ in range(group.replicas)]
            yield msgspec.structs.replace(job, placement=tuple(_slots(group.name, taken)))


def _slots(group: str, taken: Sequence[Found]) -> Iterator[TaskPlacement]:
    for index, (node, gpu, instance) in enumerate(taken):
        slot = MigSlot(gpu.id, instance, _cost(node.gpu_type, instance.profile))
        yield TaskPlacement(group, index, node.name, (instance.id_on(gpu.id),), mig=slot)


def _cost(gpu_type: GpuType, name: str) -> MilliGpu:
    model = mig_model(model_of_type(gpu_type))
    profile = find_profile(model, name)
    if profile is None:
        raise AssertionError(f"a {model.name} has no {name}")
    return MilliGpu(cost_milli_gpu(model, profile))


def _on_one(node: Node, gpu: Gpu, job: Job) -> Job:
    (group,) = job.spec.task_groups
    part = group.shape.gpu_fraction
    tasks = (
        TaskPlacement(group.name, index, node.name, (gpu.id,), share=part, sharing="mps")
        for index in range(group.replicas)
    )
    return msgspec.structs.replace(job, placement=tuple(tasks))
