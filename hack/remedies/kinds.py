"""Kinds of worlds: jobs that take GPUs whole, parts of them or MIG instances, and queues whose jobs take turns."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final, Literal, get_args

import msgspec

from solver.model.cluster import Gpu, GpuType, MigInstance, Node
from solver.model.mig import cost_milli_gpu, mig_model
from solver.model.mig_layout import find_profile, realisations
from solver.model.quantities import MilliGpu
from solver.model.shape import Shape
from solver.model.workload import Job, QueueName, TaskGroup
from solver.policy.division import MigChanges, MigGeometry, MigMode, SharingPolicy, TrustGroup
from solver.policy.ordering import OrderBy, Ordering, Turns
from solver.policy.policy import Policy, PriorityClass, Queue, policy_of

Kind = Literal["whole", "parts", "mig", "turns"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

MODEL: Final = {GpuType("H100"): "H100-80GB", GpuType("A100"): "A100-80GB"}
PROFILES: Final = ("1g.10gb", "2g.20gb", "3g.40gb")
LAYOUTS: Final = ("7x 1g.10gb", "3g.40gb + 3g.40gb", "2g.20gb + 2g.20gb + 1g.10gb")
HOUR_MS: Final = 3_600_000

FILLER: Final = "filler"
"""A queue beside all others, and a class whose jobs never leave: what they hold is not free, and nothing else follows from it."""


def cut_pool(gpu_type: GpuType, profile: str) -> str:
    """Where GPUs are, and stay, cut into nothing but instances of a profile."""
    return f"{gpu_type.lower()}-{profile}"


def policy_for(kind: Kind, policy: Policy, chance: random.Random) -> Policy:
    """What a policy says beside quotas in worlds of a kind."""
    queues, sharing, mig = policy.queues, tuple[SharingPolicy, ...](), tuple[MigGeometry, ...]()
    if kind == "turns":
        queues = tuple(_in_turns(queue, chance) if queue.parent else queue for queue in queues)
    if kind == "parts":
        everybody = TrustGroup("everybody", (QueueName("org"), QueueName(FILLER)))
        sharing = (SharingPolicy("parts", tuple(known.lower() for known in MODEL), "mps", (everybody,)),)
    if kind == "mig":
        mig = tuple(_geometries(chance))
    if kind in ("parts", "mig"):
        queues = (*queues, Queue(QueueName(FILLER)))
    classes = (*policy.priority_classes, PriorityClass(FILLER, 10_000, preemptible=False))
    return policy_of(queues, classes, policy.scheduling, sharing, mig)


def _in_turns(queue: Queue, chance: random.Random) -> Queue:
    by: OrderBy = chance.choice(("fifo", "least-served", "shortest"))
    ordering = Ordering(by, turns=Turns()) if chance.random() < 0.6 else queue.ordering
    return msgspec.structs.replace(queue, ordering=ordering)


def _geometries(chance: random.Random) -> Iterator[MigGeometry]:
    for gpu_type, model in MODEL.items():
        mode: MigMode = chance.choice(("fixed", "bounded", "free"))
        layouts = () if mode == "free" else tuple(chance.sample(LAYOUTS, 2))
        changes = None if mode == "fixed" else MigChanges(chance.choice((0, 1, 8)))
        yield MigGeometry(f"{gpu_type}-parts", gpu_type.lower(), mode, model, layouts, changes)
        for profile in PROFILES:
            cut = cut_pool(gpu_type, profile)
            yield MigGeometry(cut, cut, "bounded", model, (profile,), MigChanges(0))


def node_for(kind: Kind, node: Node, policy: Policy, chance: random.Random) -> Node:
    """A node as it is in worlds of a kind: half of the GPUs that may be partitioned are in MIG mode."""
    rule = next((known for known in policy.mig if known.pool == node.pool), None)
    if kind != "mig" or rule is None:
        return node

    def cut(gpu: Gpu) -> Gpu:
        if rule.mode == "fixed":
            layout = rule.layouts[gpu.index] if gpu.index < len(rule.layouts) else ""
        elif chance.random() < 0.5:
            return gpu
        else:
            layout = chance.choice(("", *(rule.layouts or LAYOUTS)))
        return msgspec.structs.replace(gpu, instances=_instances(rule.model, layout)) if layout else gpu

    return msgspec.structs.replace(node, gpus=tuple(map(cut, node.gpus)))


def _instances(model: str, layout: str) -> tuple[MigInstance, ...]:
    return tuple(MigInstance(placed.profile.name, placed.start) for placed in realisations(model, layout)[0])


def one_instance(gpu_type: GpuType, profile: str) -> tuple[MigInstance, ...]:
    """What a GPU has that has one of a profile and nothing else."""
    return _instances(MODEL[gpu_type], profile)


def cost_of(gpu_type: GpuType, profile: str) -> int:
    """What an instance counts as, in thousandths of a GPU."""
    model = mig_model(MODEL[gpu_type])
    known = find_profile(model, profile)
    return cost_milli_gpu(model, known) if known else 0


def job_for(kind: Kind, job: Job, chance: random.Random) -> Job:
    """A job as it is in worlds of a kind: most ask for parts, some for whole GPUs."""
    if kind == "turns":
        served = HOUR_MS * chance.choice((0, 0, 4, 16))
        return msgspec.structs.replace(job, served_gpu_ms=served)
    if kind == "whole" or chance.random() < 0.35:
        return job
    groups = tuple(_in_parts(kind, group, chance) for group in job.spec.task_groups)
    spec = msgspec.structs.replace(job.spec, task_groups=groups)
    if kind == "mig":
        spec = msgspec.structs.replace(spec, topology=msgspec.structs.replace(spec.topology, required=None))
    return msgspec.structs.replace(job, spec=spec)


def _in_parts(kind: Kind, group: TaskGroup, chance: random.Random) -> TaskGroup:
    types = group.shape.gpu_types
    if kind == "parts":
        shape = Shape(gpu_types=types, gpu_fraction=MilliGpu(chance.choice((250, 500, 750))))
    else:
        shape = Shape(gpu_types=types, mig=chance.choice(PROFILES))
    return msgspec.structs.replace(group, shape=shape, replicas=group.replicas * chance.choice((1, 2, 3)))


def later(job: Job, chance: random.Random) -> Job:
    """A running job as if it had begun earlier: what is served of a turn grows with time."""
    if job.started_at is None:
        return job
    return msgspec.structs.replace(job, started_at=job.started_at.after(-HOUR_MS * chance.choice((0, 1, 2, 5))))
