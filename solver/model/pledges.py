"""GPUs that a promise needs to be partitioned anew: what it names is not there yet, and others have to leave before it can be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from solver.model.cluster import DeviceId, Gpu, Node, NodeName
from solver.model.inflight import InFlight, Intent
from solver.model.workload import JobName, TaskPlacement

Pledged = frozenset[tuple[NodeName, DeviceId]]
"""GPUs, each with its node. Until they are partitioned no other job gets them."""

NOTHING: Pledged = frozenset()


def pledged_by(intent: Intent, gpus: Mapping[tuple[NodeName, DeviceId], Gpu]) -> Pledged:
    """What a promise needs to have partitioned: for instances that are not there, and whole GPUs that are in MIG mode."""
    return frozenset(
        (task.node, gpu)
        for task in intent.tasks
        for gpu in task.on_gpus
        if (task.node, gpu) in gpus and not _is_there(task, gpus[task.node, gpu])
    )


def pledges_in(nodes: Iterable[Node], in_flight: InFlight) -> dict[JobName, Pledged]:
    """All of that, by the job that it was promised to."""
    if not in_flight.nominations:
        return {}
    named = {task.node for intent in in_flight.nominations for task in intent.tasks}
    gpus = {(node.name, gpu.id): gpu for node in nodes if node.name in named for gpu in node.gpus}
    found = {intent.job: pledged_by(intent, gpus) for intent in in_flight.nominations}
    return {job: pledged for job, pledged in found.items() if pledged}


def beside(task: TaskPlacement, pledged: Pledged) -> TaskPlacement:
    """What a promised task holds beside GPUs that are pledged to it."""
    if not any((task.node, gpu) in pledged for gpu in task.on_gpus):
        return task
    if task.mig:
        return task.on_slots([slot for slot in task.slots if (task.node, slot.gpu) not in pledged])
    own = tuple(device for device in task.devices if (task.node, device) not in pledged)
    return msgspec.structs.replace(task, devices=own)


def _is_there(task: TaskPlacement, gpu: Gpu) -> bool:
    if task.mig is None:
        return gpu.instances is None
    return all(slot.instance in (gpu.instances or ()) for slot in task.slots if slot.gpu == gpu.id)
