"""The same world by other names."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from random import Random

import msgspec

from solver.model.cluster import DeviceId, Node, NodeName
from solver.model.snapshot import snapshot_of
from solver.model.workload import Job, JobName, QueueName, TaskPlacement
from solver.policy.policy import policy_of
from tests.solver.laws.worlds import World


def renamed(world: World, seed: int) -> tuple[World, dict[str, str]]:
    """The same world with the names of queues, jobs and nodes exchanged among themselves, and which became which."""
    random, (snapshot, policy) = Random(seed), world
    names = dict[str, str]()
    for known in (
        [str(queue.name) for queue in policy.queues],
        [str(job.name) for job in snapshot.jobs],
        [str(node.name) for node in snapshot.nodes],
    ):
        mixed = list(known)
        random.shuffle(mixed)
        names |= dict(zip(known, mixed, strict=True))
    queues = tuple(
        msgspec.structs.replace(
            queue, name=QueueName(names[queue.name]), parent=QueueName(names[queue.parent]) if queue.parent else None
        )
        for queue in policy.queues
    )
    sharing = tuple(
        msgspec.structs.replace(
            known,
            trust_domains=tuple(
                msgspec.structs.replace(group, queues=tuple(QueueName(names[name]) for name in group.queues))
                for group in known.trust_domains
            ),
        )
        for known in policy.sharing
    )
    nodes = map(partial(_renamed_node, names), snapshot.nodes)
    jobs = map(partial(_renamed_job, names), snapshot.jobs)
    changed = policy_of(queues, policy.priority_classes, policy.scheduling, sharing)
    return World(snapshot_of(snapshot.time, nodes, jobs), changed), names


def _renamed_node(names: Mapping[str, str], node: Node) -> Node:
    gpus = tuple(msgspec.structs.replace(gpu, id=_device(names, str(gpu.id))) for gpu in node.gpus)
    return msgspec.structs.replace(node, name=NodeName(names[node.name]), gpus=gpus)


def _renamed_job(names: Mapping[str, str], job: Job) -> Job:
    def moved(task: TaskPlacement) -> TaskPlacement:
        devices = tuple(_device(names, str(device)) for device in task.devices)
        return msgspec.structs.replace(task, node=NodeName(names[task.node]), devices=devices)

    spec = msgspec.structs.replace(job.spec, queue=QueueName(names[job.spec.queue]))
    placement = tuple(map(moved, job.placement))
    return msgspec.structs.replace(job, name=JobName(names[job.name]), spec=spec, placement=placement)


def _device(names: Mapping[str, str], device: str) -> DeviceId:
    node, _, number = device.partition("/")
    return DeviceId(f"{names[node]}/{number}")
