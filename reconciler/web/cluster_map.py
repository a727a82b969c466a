"""The map of a cluster as columns: small enough to send whole, a number for each GPU, what is alike one after another as a run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Final

from reconciler.web.natural_order import natural
from solver.model.cluster import DeviceId, Node
from solver.model.document import Document
from solver.model.pledges import gpus_of
from solver.model.quantities import Instant
from solver.model.snapshot import Snapshot
from solver.model.workload import Job, TaskPlacement
from solver.policy.policy import Policy

FREE: Final = -1
"""In `held`: no job."""
IN_PARTS: Final = -2
"""In `held`: jobs have parts of it, or MIG instances: `parts` has them."""

Runs = tuple[int, ...]
"""Value, how often, value, how often, and so on."""


class MapJobs(Document, frozen=True, omit_defaults=False):
    """Columns of the jobs that hold something. `until`: when their time limit is over; "" where there is none."""

    name: tuple[str, ...]
    queue: tuple[int, ...]
    priority_class: tuple[int, ...]
    user: tuple[str, ...]
    since: tuple[str, ...]
    until: tuple[str, ...]
    leaving: tuple[int, ...]


class ClusterMap(Document, frozen=True, omit_defaults=False):
    """Nodes lie in the order of `nodes`, their GPUs one after the other in that order.

    `state` of each GPU: 0 well, 1 cordoned or not ready, 2 not well. `kept`: 0 for nobody, 1 reserved, 2 promised.
    `parts`: GPU, start and size in thousandths of it, job; again and again.
    """

    time: Instant
    blocks: tuple[str, ...]
    racks: tuple[str, ...]
    rack_block: tuple[int, ...]
    types: tuple[str, ...]
    queues: tuple[str, ...]
    parents: tuple[int, ...]
    priority_classes: tuple[str, ...]
    nodes: tuple[str, ...]
    node_rack: Runs
    node_type: Runs
    node_gpus: Runs
    state: Runs
    kept: Runs
    held: Runs
    parts: tuple[int, ...]
    jobs: MapJobs


def map_of(snapshot: Snapshot, policy: Policy) -> ClusterMap:
    """The world as a pass saw it."""
    nodes = sorted((node for node in snapshot.nodes if node.gpus), key=_place)
    at = {gpu.id: number for number, gpu in enumerate(gpu for node in nodes for gpu in node.gpus)}
    racks = list(dict.fromkeys((node.block, node.rack or node.name) for node in nodes))
    blocks = list(dict.fromkeys(block for block, _ in racks))
    types = sorted({node.gpu_type for node in nodes})
    queues = [queue.name for queue in policy.queues]
    jobs = [job for job in snapshot.jobs if job.placement]
    held, parts = _held(jobs, at)
    number_of_rack, number_of_queue = _numbers(racks), _numbers(queues)
    return ClusterMap(
        time=snapshot.time,
        blocks=tuple(block or "no block" for block in blocks),
        racks=tuple(rack for _, rack in racks),
        rack_block=tuple(map(_numbers(blocks).__getitem__, (block for block, _ in racks))),
        types=tuple(types),
        queues=tuple(queues),
        parents=tuple(-1 if queue.parent is None else number_of_queue[queue.parent] for queue in policy.queues),
        priority_classes=(classes := tuple(sorted({job.spec.priority_class for job in jobs}))),
        nodes=tuple(node.name for node in nodes),
        node_rack=runs(number_of_rack[node.block, node.rack or node.name] for node in nodes),
        node_type=runs(map(_numbers(types).__getitem__, (node.gpu_type for node in nodes))),
        node_gpus=runs(len(node.gpus) for node in nodes),
        state=runs(_state(node, gpu.healthy) for node in nodes for gpu in node.gpus),
        kept=runs(_kept(snapshot, at)),
        held=runs(held),
        parts=tuple(parts),
        jobs=_jobs(snapshot, jobs, number_of_queue, _numbers(classes)),
    )


def runs(values: Iterable[int]) -> Runs:
    """What is alike one after another, together."""
    return tuple(number for value, alike in groupby(values) for number in (value, sum(1 for _ in alike)))


def _place(node: Node) -> tuple[object, ...]:
    """By type, block, rack and name, each in natural order."""
    return node.gpu_type, natural(node.block), natural(node.rack), natural(node.name)


def _numbers(names: Iterable[object]) -> dict[object, int]:
    return {name: number for number, name in enumerate(names)}


def _state(node: Node, healthy: bool) -> int:
    if not healthy:
        return 2
    return 1 if node.cordoned or not node.ready else 0


def _held(jobs: Sequence[Job], at: Mapping[DeviceId, int]) -> tuple[list[int], list[int]]:
    """The holder of each GPU, and all parts, by GPU and where they begin."""
    held, parts = [FREE] * len(at), defaultdict[int, list[tuple[int, int, int]]](list)
    for number, job in enumerate(jobs):
        for task in job.placement:
            for device in gpus_of(task):
                if device not in at:
                    continue  # Its node is gone.
                if task.mig is None and task.share is None:
                    held[at[device]] = number
                else:
                    held[at[device]] = IN_PARTS
                    own = parts[at[device]]
                    own.append((_start(task, own), int(task.gpus), number))
    flat = [number for gpu in sorted(parts) for part in sorted(parts[gpu]) for number in (gpu, *part)]
    return held, flat


def _start(task: TaskPlacement, before: Sequence[tuple[int, int, int]]) -> int:
    """Where it begins, in thousandths: of an instance as the GPU has it; of others one after the other."""
    if task.mig is not None:
        return task.mig.instance.start * 125
    return sum(size for _, size, _ in before)


def _kept(snapshot: Snapshot, at: Mapping[DeviceId, int]) -> list[int]:
    kept = [0] * len(at)
    for reserved in snapshot.in_flight.reservations:
        for task in reserved.tasks:
            for device in gpus_of(task):
                if device in at:
                    kept[at[device]] = 1
    for promise in snapshot.in_flight.nominations:
        for task in promise.tasks:
            for device in gpus_of(task):
                if device in at:
                    kept[at[device]] = 2
    return kept


def _jobs(
    snapshot: Snapshot, jobs: Sequence[Job], queues: Mapping[object, int], classes: Mapping[object, int]
) -> MapJobs:
    leaving = {intent.job for intent in snapshot.in_flight.intents if intent.kind == "stop"}
    limits = ((job.started_at, job.time_limit) for job in jobs)
    return MapJobs(
        name=tuple(job.name for job in jobs),
        # Under a policy without it, a queue may have jobs that run on.
        queue=tuple(queues.get(job.spec.queue, -1) for job in jobs),
        priority_class=tuple(classes[job.spec.priority_class] for job in jobs),
        user=tuple(job.user for job in jobs),
        since=tuple("" if job.started_at is None else str(job.started_at) for job in jobs),
        until=tuple("" if since is None or limit is None else str(since.after(limit)) for since, limit in limits),
        leaving=tuple(number for number, job in enumerate(jobs) if job.name in leaving),
    )
