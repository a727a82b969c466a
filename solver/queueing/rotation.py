"""Which jobs have their turn: in a queue that takes turns, those that come first and together fit into what the queue can hold.

Running and waiting jobs stand in one line: SLO class, value, cost (queueing/costs). Along it, each has its turn that still
fits, by the count of GPUs. So it depends on nothing but the line: a job that gives way has no turn itself until the line has
changed, and that takes running time. While one that has waited for `maxWait` has its turn, none behind it that waits has.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from solver.model.cluster import GpuType, NodeName
from solver.model.parts import owner_of
from solver.model.quantities import MilliGpu
from solver.model.snapshot import Snapshot, charged
from solver.model.workload import Job, JobName, QueueName
from solver.policy.policy import Policy
from solver.policy.precedence import Precedence, QueuePlace, ordering_of
from solver.queueing.costs import places_in
from solver.quota.entitlement import Charge, Shares
from solver.quota.lending import Weights
from solver.quota.options import Option
from solver.quota.victims import Holder, holders_of

Standing = tuple[QueuePlace, Job, Sequence[Charge]]
"""A job in line, and what it holds, or each of the ways in which it could be served."""


def with_precedence(
    shares: Shares, snapshot: Snapshot, policy: Policy, waiting: Iterable[tuple[Job, Sequence[Option]]]
) -> Shares:
    """The shares, with the order of jobs, and which have their turn, in queues that go by cost."""
    places = places_in(snapshot, policy, shares.tree)
    if not places:
        return shares
    types = {node.name: node.gpu_type for node in snapshot.nodes if node.schedulable}
    free, lines = _free(snapshot, types), _lines(shares, snapshot, policy, waiting, places)
    in_turn = frozenset(
        name for queue, line in lines.items() for name in _in_turn(line, _room(queue, line, free, types, shares))
    )
    return replace(shares, precedence=Precedence(places, in_turn))


def _lines(
    shares: Shares,
    snapshot: Snapshot,
    policy: Policy,
    waiting: Iterable[tuple[Job, Sequence[Option]]],
    places: dict[JobName, QueuePlace],
) -> dict[QueueName, list[Standing]]:
    """The line of each queue that takes turns: jobs that can't be made to leave first, then by place."""
    lines: dict[QueueName, list[Standing]] = defaultdict(list)
    settled: dict[QueueName, list[Standing]] = defaultdict(list)
    for holder in holders_of(snapshot, policy):
        if owner_of(holder.job.name) in places:
            into = lines if holder.priority_class.preemptible else settled
            into[holder.job.spec.queue].append(_standing(holder, places))
    for job, options in waiting:
        if job.name in places:
            lines[job.spec.queue].append((places[job.name], job, [option.charge for option in options]))
    return {
        queue: settled[queue] + sorted(line, key=lambda known: (known[0], known[1].submitted_at, known[1].name))
        for queue, line in lines.items()
        if ordering_of(shares.tree, queue).turns
    }


def _standing(holder: Holder, places: dict[JobName, QueuePlace]) -> Standing:
    return places[owner_of(holder.job.name)], holder.job, [holder.charge]


def _free(snapshot: Snapshot, types: dict[NodeName, GpuType]) -> Counter[GpuType]:
    """Milli-GPU of open nodes that are neither held nor promised."""
    free: Counter[GpuType] = Counter()
    for node in snapshot.nodes:
        if node.name in types:
            free[node.gpu_type] += MilliGpu.gpus(sum(gpu.healthy for gpu in node.gpus))
    for _, tasks in charged(snapshot):
        for task in tasks:
            if task.node in types:
                free[types[task.node]] -= task.gpus
    return free


def _room(
    queue: QueueName, line: Sequence[Standing], free: Charge, types: dict[NodeName, GpuType], shares: Shares
) -> dict[GpuType, int]:
    """What the queue can hold, by type: what its running jobs do, and what is free below every max and not kept back by others."""
    held: Counter[GpuType] = Counter()
    for _, job, _ in line:
        for task in job.placement:
            if task.node in types:
                held[types[task.node]] += task.gpus
    weights, rooms = Weights.of(shares.tree, shares.lending, shares.used), {}
    for gpu_type, milli in free.items():
        limits = [shares.left_under_max(above) for above in shares.tree.lines(queue, gpu_type)]
        limits.append(weights.room(queue, gpu_type))
        rooms[gpu_type] = held[gpu_type] + max(0, min(milli, *(room for room in limits if room is not None), milli))
    return rooms


def _in_turn(line: Iterable[Standing], room: dict[GpuType, int]) -> Iterator[JobName]:
    waited_too_long = False
    for place, job, charges in line:
        waits = job.phase == "pending"
        if waits and waited_too_long and place.cost >= 0:
            continue
        charge = next((charge for charge in charges if _fits(charge, room)), None)
        if charge is None:
            continue
        for gpu_type, milli in charge.items():
            room[gpu_type] = room.get(gpu_type, 0) - milli
        if waits:
            waited_too_long = waited_too_long or place.cost < 0
            yield job.name


def _fits(charge: Charge, room: dict[GpuType, int]) -> bool:
    return all(milli <= room.get(gpu_type, 0) for gpu_type, milli in charge.items())
