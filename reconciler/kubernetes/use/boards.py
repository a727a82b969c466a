"""Which device of a node a board is: the kubelet chooses boards for pods, and what is decided counts devices. Pure.

The exporter says which pod has a board, and placements which devices the pod's job has on that node: the boards of a job are its
devices, in either's order, and all others are those that no job holds. A board stays what it was as long as it can be.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from solver.model.cluster import DeviceId, Node, NodeName
from solver.model.snapshot import Snapshot
from solver.model.workload import JobName

PodKey = tuple[str, str]
"""Namespace and name."""


class Holdings(NamedTuple):
    """What is known of a cluster: its nodes, which devices jobs hold on each, and of which jobs pods are."""

    nodes: Mapping[NodeName, Node]
    held: Mapping[NodeName, Mapping[JobName, tuple[DeviceId, ...]]]
    jobs: Mapping[PodKey, JobName]


def holdings_of(snapshot: Snapshot, jobs: Mapping[PodKey, JobName]) -> Holdings:
    """Of a snapshot. Instances of partitioned GPUs are not among devices: of those nothing is known."""
    held: dict[NodeName, dict[JobName, set[DeviceId]]] = defaultdict(lambda: defaultdict(set))
    for job in snapshot.jobs:
        for task in job.placement:
            if task.mig is None and task.devices:
                held[task.node][job.name].update(task.devices)
    nodes = {node.name: node for node in snapshot.nodes if node.gpus}
    return Holdings(
        nodes, {node: {job: tuple(sorted(of)) for job, of in each.items()} for node, each in held.items()}, jobs
    )


def devices_of(
    node: Node, boards: Mapping[str, PodKey | None], known: Holdings, before: Mapping[str, DeviceId]
) -> dict[str, DeviceId]:
    """By UUID. A board of which it can't be said which device it is is left out. `boards`: those of the node, with their pods.

    `before`: what they were in the minute before.
    """
    held = known.held.get(node.name, {})
    devices = [gpu.id for gpu in node.gpus]
    by_job: dict[JobName | None, list[str]] = defaultdict(list)
    for uuid in sorted(boards):
        pod = boards[uuid]
        by_job[known.jobs.get(pod) if pod is not None else None].append(uuid)
    if len(held) == 1 and not any(boards.values()):
        # Pods are not told, and need not be: one job has the whole node.
        (only,) = held
        if set(held[only]) == set(devices):
            by_job = {only: sorted(boards)}
    taken = {device for job in held.values() for device in job}
    found: dict[str, DeviceId] = {}
    for job, uuids in by_job.items():
        own = [device for device in devices if device not in taken] if job is None else held.get(job, ())
        found |= _matched(uuids, own, before)
    return found


def _matched(uuids: Iterable[str], devices: Sequence[DeviceId], before: Mapping[str, DeviceId]) -> dict[str, DeviceId]:
    stays = {uuid: before[uuid] for uuid in uuids if before.get(uuid) in devices}
    free = iter([device for device in devices if device not in stays.values()])
    others = [uuid for uuid in uuids if uuid not in stays]
    return stays | dict(zip(others, free, strict=False))
