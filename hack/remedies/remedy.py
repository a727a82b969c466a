"""The changes that a verdict says would help, made as they are worded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec

from hack.remedies.parts import with_parts
from hack.remedies.world import NOW, World, is_free, node, on_nodes, used_gpus, with_nodes
from solver.model.cluster import DeviceId, Gpu, GpuType, Node
from solver.model.quantities import MILLI_PER_GPU, Cpu, Duration, MilliGpu
from solver.model.snapshot import snapshot_of
from solver.model.workload import Job, JobName, QueueName
from solver.plan.hopes import what_would_help
from solver.plan.mig_reasons import MigGeometryReason
from solver.plan.reasons import (
    AnyReason,
    BeyondGuarantee,
    CapacityReason,
    HeldReason,
    HostResources,
    NoRoomReason,
    Protected,
    QuotaMax,
    ReservedFor,
    Topology,
)
from solver.policy.policy import Policy, Quota, policy_of
from solver.policy.tree import QueueTree, QuotaLine
from solver.quota.entitlement import gpus_by_type
from solver.quota.guarantees import guarantees

Way = Literal["room", "protection", "borrowing", "level"]
"""Of several things that would do, which is tried: more room or quota; no protection in place of room; a class that may
borrow in place of a larger guarantee; a wider level in place of a roomy domain."""

ROOM = (CapacityReason, NoRoomReason, HostResources, Topology, MigGeometryReason)


def ways(reasons: Iterable[AnyReason]) -> Iterator[Way]:
    """What can be tried of what these reasons offer."""
    kinds = {type(reason) for reason in reasons}
    yield "room"
    if Protected in kinds:
        yield "protection"
    if BeyondGuarantee in kinds:
        yield "borrowing"
    if Topology in kinds:
        yield "level"


def can_be_tried(reasons: Sequence[AnyReason]) -> bool:
    """Whether each of these reasons offers something: for some only time helps."""
    return all(what_would_help((reason,)) for reason in reasons)


def of_type(reasons: Iterable[AnyReason], gpu_type: GpuType) -> tuple[AnyReason, ...]:
    """The reasons that bind a job if it takes GPUs of this type."""
    return tuple(reason for reason in reasons if getattr(reason, "gpu_type", gpu_type) in (gpu_type, ""))


def made(world: World, job: Job, gpu_type: GpuType, reasons: Iterable[AnyReason], way: Way) -> World:
    """The world with all that these reasons ask for."""
    for reason in _in_order(_of_way(reasons, way)):
        world = _made(world, job, gpu_type, reason, way)
    return world


def _of_way(reasons: Iterable[AnyReason], way: Way) -> list[AnyReason]:
    """Those of which something is done; of what a queue lends now and then, the larger."""
    kept = list[AnyReason]()
    for reason in reasons:
        match reason:
            case CapacityReason() | NoRoomReason() | HostResources() | Topology() | MigGeometryReason():
                done = way != "protection"
            case QuotaMax(is_ahead=True):
                done = bool(reason.with_gpus and way != "protection") or bool(
                    reason.with_guarantee and way != "borrowing"
                )
            case _:
                done = True
        if done:
            kept.append(reason)
    ahead = {reason.queue for reason in kept if isinstance(reason, QuotaMax) and reason.is_ahead}
    return [r for r in kept if not (isinstance(r, QuotaMax) and r.kept_back and r.queue in ahead and not r.is_ahead)]


def _in_order(reasons: Iterable[AnyReason]) -> list[AnyReason]:
    """A whole domain first: what else is to be free may lie in it."""
    return sorted(reasons, key=lambda reason: not isinstance(reason, Topology))


def _made(world: World, job: Job, gpu_type: GpuType, reason: AnyReason, way: Way) -> World:
    if isinstance(reason, ROOM):
        return _with_room(world, job, gpu_type, reason, way)
    match reason:
        case HeldReason(queue=queue):
            return _with_queue(world, queue, stop_policy="None")
        case QuotaMax():
            return _with_quota(world, gpu_type, reason)
        case BeyondGuarantee(queue=queue, room=room, wanted=wanted):
            if way == "borrowing":
                return _with_class(world, world.policy.priority_class_name(job), may_borrow=True)
            return _guaranteeing(world, queue, gpu_type, wanted - room)
        case Protected() if way == "protection":
            return _unprotected(world, reason)
        case ReservedFor(start=start):
            return _with_spec(world, job.name, time_limit=Duration(max(1, start - NOW - 1)))
        case _:
            return world


def _unprotected(world: World, reason: Protected) -> World:
    """What a class or a round protects is protected no more."""
    scheduling, classes = world.policy.scheduling, world.policy.priority_classes
    if reason.by == "perRound":
        evictions = msgspec.structs.replace(scheduling.evictions, per_round=None)
        return _under(world, scheduling=msgspec.structs.replace(scheduling, evictions=evictions))
    known = next((known for known in classes if known.name == reason.priority_class), None)
    if reason.by != "minRuntime" or known is None:
        return world
    protection = msgspec.structs.replace(known.protection, min_runtime=Duration(0))
    return _with_class(world, known.name, protection=protection)


def _with_room(world: World, job: Job, gpu_type: GpuType, reason: AnyReason, way: Way) -> World:
    """More nodes or larger ones, in the domain where they help most."""
    there, rack = len(world.snapshot.nodes), _emptiest_rack(world, gpu_type)
    if any(group.shape.is_shared or group.shape.mig for group in job.spec.task_groups) and not (
        isinstance(reason, Topology) and way == "level"
    ):
        return with_parts(world, job, gpu_type, reason, rack)
    match reason:
        case MigGeometryReason(tasks=tasks, fit_as_it_is=fit):
            gpus = max(group.shape.gpus for group in job.spec.task_groups)
            return with_nodes(
                world, (node(f"whole-{there}-{n}", gpu_type, gpus, rack, gpus * 64) for n in range(tasks - fit))
            )
        case Topology() if way == "level":
            wider = msgspec.structs.replace(job.spec.topology, required=None)
            return _with_spec(world, job.name, topology=wider)
        case Topology(wanted=wanted):
            return with_nodes(world, _nodes_for(job, gpu_type, wanted, "roomy", there))
        case CapacityReason(free=free, wanted=wanted):
            return _freed(world, job, gpu_type, wanted - free)
        case NoRoomReason(gpus_per_task=each, tasks=tasks, tasks_that_fit=fit) if not _has_roomy(world):
            gpus = each // MILLI_PER_GPU
            names = (f"task-{there}-{index}" for index in range(tasks - fit))
            return with_nodes(world, (node(name, gpu_type, gpus, rack, gpus * 64) for name in names))
        case HostResources(group=group, cpu=cpu, tasks=tasks, tasks_that_fit=fit) if not _has_roomy(world):
            gpus = next(known.shape.gpus for known in job.spec.task_groups if known.name == group)
            names = (f"host-{there}-{index}" for index in range(tasks - fit))
            return with_nodes(world, (node(name, gpu_type, gpus, rack, -(-cpu // 1000)) for name in names))
        case _:
            return world


def _emptiest_rack(world: World, gpu_type: GpuType) -> str:
    """Where most GPUs of a type are free: more that is to lie in one domain helps most there."""
    used = used_gpus(world)
    free = Counter[str]()
    for known in world.snapshot.nodes:
        if known.gpu_type == gpu_type:
            free[known.rack] += sum(is_free(world, known, gpu, used) for gpu in known.gpus)
    return free.most_common(1)[0][0] if free else "fresh"


def _has_roomy(world: World) -> bool:
    """Whether a domain with room for all of the gang has come already."""
    return any(known.rack == "roomy" for known in world.snapshot.nodes)


def _nodes_for(job: Job, gpu_type: GpuType, wanted: int, rack: str, there: int) -> Iterator[Node]:
    """So many GPUs in one domain, with nodes that suit the tasks."""
    left = wanted // MILLI_PER_GPU
    for group in job.spec.task_groups:
        for index in range(group.replicas):
            gpus = min(group.shape.gpus, left)
            if gpus:
                yield node(f"{rack}-{there}-{group.name}-{index}", gpu_type, gpus, rack, gpus * 64)
            left -= gpus


def _freed(world: World, job: Job, gpu_type: GpuType, lacking: int) -> World:
    """So many more GPUs are free, where they help most: beside what is too little for a task, then as nodes for whole tasks.

    As many tasks as can be are where GPUs are free already, the largest first.
    """
    left, used = lacking // MILLI_PER_GPU, used_gpus(world)
    nodes = {known.name: known for known in world.snapshot.nodes}
    there = {
        name: sum(is_free(world, known, gpu, used) for gpu in known.gpus)
        for name, known in nodes.items()
        if known.gpu_type == gpu_type
    }
    wanted = sorted((each.shape.gpus for each in job.spec.task_groups for _ in range(each.replicas)), reverse=True)
    for gpus in tuple(wanted):
        fitting = [name for name, free in there.items() if free >= gpus]
        if fitting:
            there[min(fitting, key=lambda name: there[name])] -= gpus
            wanted.remove(gpus)
    fresh = list[Node]()
    while left:
        gpus = wanted.pop(0) if wanted else left
        most = max(there, key=lambda name: there[name], default=None)
        if most is not None and gpus - left <= there[most] < gpus:
            free = there.pop(most)
            nodes[most], left = _larger(nodes[most], gpus - free), left - (gpus - free)
        else:
            more = min(gpus, left)
            fresh.append(node(f"free-{len(nodes)}-{len(fresh)}", gpu_type, more, "fresh", more * 64))
            left -= more
    return with_nodes(World(on_nodes(world, tuple(nodes.values())), world.policy), fresh)


def _larger(known: Node, more: int) -> Node:
    first = len(known.gpus)
    gpus = tuple(Gpu(DeviceId(f"{known.name}/{index}"), index) for index in range(first, first + more))
    return msgspec.structs.replace(known, gpus=(*known.gpus, *gpus), cpu=Cpu(known.cpu + more * 64_000))


def _with_spec(world: World, name: JobName, **fields: object) -> World:
    known = world.snapshot
    jobs = [
        msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, **fields)) if job.name == name else job
        for job in known.jobs
    ]
    return World(snapshot_of(known.time, known.nodes, jobs, known.in_flight), world.policy)


def _with_quota(world: World, gpu_type: GpuType, reason: QuotaMax) -> World:
    """`its max at 10`, and the same of what a user may hold; or as much more lent."""
    most = MilliGpu(reason.used + reason.wanted)
    quota = _quota(world.policy, reason.queue, gpu_type)
    if reason.kept_back is not None:
        lent = (quota.lendable or 0) + min(most - reason.max, reason.kept_back)
        whole = quota.guaranteed is not None and lent >= quota.guaranteed
        return _with_entry(world, reason.queue, gpu_type, lendable=None if whole else MilliGpu(lent))
    if reason.user is not None:
        return _with_entry(world, reason.queue, gpu_type, per_user=most)
    return _with_entry(world, reason.queue, gpu_type, max=most)


def _guaranteeing(world: World, name: QueueName, gpu_type: GpuType, more: int) -> World:
    """A guarantee that is by weight, beside those of other queues, is stated; and none is larger than the max beside it."""
    quota, policy = _quota(world.policy, name, gpu_type), world.policy
    guaranteed = quota.guaranteed
    if guaranteed is None:
        there = gpus_by_type(world.snapshot)
        by_weight = guarantees(QueueTree.of(policy), there)[QuotaLine(name, gpu_type)]
        if by_weight == there.get(gpu_type):
            return world  # All that there is.
        guaranteed = MilliGpu(by_weight)
    guaranteed = MilliGpu(guaranteed + more)
    most = None if quota.max is None else max(quota.max, guaranteed)
    return _with_entry(world, name, gpu_type, guaranteed=guaranteed, max=most)


def _quota(policy: Policy, name: QueueName, gpu_type: GpuType) -> Quota:
    queue = policy.queue(name)
    quota = queue.quota_for(gpu_type) if queue else None
    if quota is None:
        raise LookupError(f"queue {name} has no quota of {gpu_type}")
    return quota


def _with_entry(world: World, name: QueueName, gpu_type: GpuType, **fields: object) -> World:
    queue = world.policy.queue(name)
    quota = tuple(
        msgspec.structs.replace(entry, **fields) if entry.gpu_type == gpu_type else entry
        for entry in (queue.quota if queue else ())
    )
    return _with_queue(world, name, quota=quota)


def _with_queue(world: World, name: QueueName, **fields: object) -> World:
    queues = (msgspec.structs.replace(q, **fields) if q.name == name else q for q in world.policy.queues)
    return _under(world, queues=tuple(queues))


def _with_class(world: World, name: str, **fields: object) -> World:
    known = world.policy.priority_classes
    return _under(
        world, priority_classes=tuple(msgspec.structs.replace(c, **fields) if c.name == name else c for c in known)
    )


def _under(world: World, **fields: object) -> World:
    changed = msgspec.structs.replace(world.policy, **fields)
    divided = changed.sharing, changed.mig, changed.reservations
    return World(world.snapshot, policy_of(changed.queues, changed.priority_classes, changed.scheduling, *divided))
