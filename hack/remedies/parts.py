"""More room in parts of GPUs, made as reasons word it: so much more free, where it helps most, and not more."""

from __future__ import annotations

import msgspec

from hack.remedies.kinds import FILLER, cost_of, cut_pool, one_instance
from hack.remedies.world import NOW, World, node, with_nodes
from solver.model.cluster import DeviceId, GpuType, Node
from solver.model.quantities import MILLI_PER_GPU, MilliGpu
from solver.model.shape import Shape
from solver.model.snapshot import snapshot_of
from solver.model.workload import Job, JobName, JobSpec, QueueName, TaskGroup, TaskPlacement
from solver.plan.mig_reasons import MigGeometryReason
from solver.plan.reasons import AnyReason, CapacityReason, NoRoomReason, Topology


def with_parts(world: World, job: Job, gpu_type: GpuType, reason: AnyReason, rack: str) -> World:
    """The world with what a reason asks for, for a job that takes parts of GPUs or instances."""
    match reason:
        case CapacityReason(free=free, wanted=wanted):
            return _freed(world, job, gpu_type, wanted - free, rack)
        case NoRoomReason(group=group, tasks=tasks, tasks_that_fit=fit):
            return _with_tasks(world, _shape(job, group), gpu_type, tasks - fit, rack)
        case MigGeometryReason(group=group, profile=profile, tasks=tasks, fit_as_it_is=fit):
            shape = msgspec.structs.replace(_shape(job, group), mig=profile or None)
            return _with_tasks(world, shape, gpu_type, tasks - fit, rack)
        case Topology():
            for known in job.spec.task_groups:
                world = _with_tasks(world, known.shape, gpu_type, known.replicas, "roomy")
            return world
        case _:
            return world


def _shape(job: Job, group: str) -> Shape:
    return next(known.shape for known in job.spec.task_groups if known.name == group)


def _with_tasks(world: World, shape: Shape, gpu_type: GpuType, tasks: int, rack: str) -> World:
    """Room for so many more tasks of a shape, and for nothing else."""
    for _ in range(tasks):
        if shape.mig:
            world = with_nodes(world, (_instance_node(world, gpu_type, shape.mig, rack),))
        elif shape.gpu_fraction:
            world = _with_free(world, gpu_type, shape.gpu_fraction, rack)
        else:
            world = with_nodes(world, (node(_fresh(world), gpu_type, shape.gpus, rack),))
    return world


def _instance_node(world: World, gpu_type: GpuType, profile: str, rack: str) -> Node:
    made = node(_fresh(world), gpu_type, 1, rack)
    gpu = msgspec.structs.replace(made.gpus[0], instances=one_instance(gpu_type, profile))
    return msgspec.structs.replace(made, gpus=(gpu,), pool=cut_pool(gpu_type, profile))


def _freed(world: World, job: Job, gpu_type: GpuType, lacking: int, rack: str) -> World:
    """So many thousandths more are free: what a GPU has left is made up to what a task needs before another GPU is."""
    free, left = _free(world, gpu_type), lacking
    for shape in (known.shape for known in job.spec.task_groups for _ in range(known.replicas)):
        if shape.mig:
            cost = cost_of(gpu_type, shape.mig)
            if left > 0:
                world, left = _with_tasks(world, shape, gpu_type, 1, rack), left - cost
            continue
        wanted = int(shape.gpu_fraction or 0)
        fitting = [gpu for gpu, milli in free.items() if milli >= wanted]
        if fitting:
            free[min(fitting, key=lambda gpu: free[gpu])] -= wanted
            continue
        most = max(free, key=lambda gpu: free[gpu], default=None)
        there = free.pop(most) if most is not None else 0
        if wanted - there > left:
            break
        if most is not None and there:
            world = _filled(world, most, there)
        world, left = _with_free(world, gpu_type, wanted, rack), left - (wanted - there)
    while left > 0 and not any(group.shape.mig for group in job.spec.task_groups):
        world, left = _with_free(world, gpu_type, min(left, MILLI_PER_GPU), rack), left - MILLI_PER_GPU
    return world


def _free(world: World, gpu_type: GpuType) -> dict[DeviceId, int]:
    """What is free of each GPU of a type."""
    free = {gpu.id: MILLI_PER_GPU for known in world.snapshot.nodes if known.gpu_type == gpu_type for gpu in known.gpus}
    for task in (task for known in world.snapshot.jobs for task in known.placement):
        for device in task.devices:
            if device in free:
                free[device] -= MILLI_PER_GPU if task.share is None else task.share
    return {gpu: milli for gpu, milli in free.items() if milli > 0}


def _with_free(world: World, gpu_type: GpuType, milli: int, rack: str) -> World:
    """One more GPU, of which so much is free."""
    made = node(_fresh(world), gpu_type, 1, rack)
    world = with_nodes(world, (made,))
    return _filled(world, made.gpus[0].id, MILLI_PER_GPU - milli) if milli < MILLI_PER_GPU else world


def _filled(world: World, gpu: DeviceId, milli: int) -> World:
    """Something that never ends has so much of a GPU."""
    host = next(known for known in world.snapshot.nodes if gpu in {each.id for each in known.gpus})
    shape = Shape(gpu_types=(host.gpu_type,), gpu_fraction=MilliGpu(milli))
    spec = JobSpec(QueueName(FILLER), (TaskGroup(FILLER, 1, shape),), FILLER)
    held = TaskPlacement(FILLER, 0, host.name, (gpu,), MilliGpu(milli), "mps")
    name = JobName(f"{FILLER}-{sum(job.spec.queue == FILLER for job in world.snapshot.jobs)}")
    job = Job(name, NOW, spec, FILLER, "running", 1, NOW, (held,))
    known = world.snapshot
    return World(snapshot_of(known.time, known.nodes, (*known.jobs, job), known.in_flight), world.policy)


def _fresh(world: World) -> str:
    return f"part-{len(world.snapshot.nodes)}"
