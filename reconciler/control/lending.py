"""What idle jobs lend: for a round they are of a queue that is guaranteed nothing, so that the rules for borrowed GPUs hold.

A job of queue `research` that was lent is of `lent:research` in snapshots of rounds, a root without guarantee, weight or limits.
No Queue in Git can be called so. What it holds is not its queue's use any more, so that jobs of its own queue take it back like
those of others. As long as it lasts the `max` of its queue, and of those above, is lower by it, but not below their guarantee; and
so is a limit for which a clock runs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from reconciler.lifecycle.jobs.idle_gpus import whole_gpus
from solver.model.cluster import GpuType
from solver.model.inflight import ConvergenceClock
from solver.model.quantities import MilliGpu
from solver.model.snapshot import Snapshot
from solver.model.workload import Job, JobName, QueueName
from solver.policy.policy import Policy, Queue, Quota
from solver.policy.tree import QueueTree, QuotaLine
from solver.policy.windows import policy_at
from solver.queueing.entry import draining
from solver.quota.entitlement import charge_of_tasks, gpus_by_type
from solver.quota.guarantees import guarantees

_LENT: Final = "lent:"


def lent_queue(queue: QueueName) -> QueueName:
    """Of which queue a job is in rounds while it is lent."""
    return QueueName(f"{_LENT}{queue}")


def own_queue(queue: QueueName) -> QueueName:
    """The queue to which it was submitted."""
    return QueueName(queue.removeprefix(_LENT))


def lendable(job: Job, policy: Policy, tree: QueueTree) -> bool:
    """Whether what a job holds can count as borrowed: whole GPUs, of a class that may leave, in a queue that keeps nothing for it.

    A Reservation for its queue or user is for what it holds, and in a queue that drains it leaves anyway.
    """
    known, path = policy.priority_class(job), tree.path(job.spec.queue)
    may_leave = known is not None and (known.preemptible or known.may_borrow)
    kept = any(reservation.admits(path, job.user, job.name) for reservation in policy.reservations)
    is_there = job.phase == "running" and whole_gpus(job.placement) is not None and bool(path)
    return is_there and may_leave and not kept and draining(tree, job.spec.queue) is None


def with_lent(snapshot: Snapshot, policy: Policy, lent: Iterable[JobName]) -> tuple[Snapshot, Policy]:
    """The world of a round and its policy, where these are lent as far as they can be; both as they are where none is."""
    names = set(lent)
    if not names:
        return snapshot, policy
    git, policy = policy, policy_at(policy, snapshot.time)
    tree = QueueTree.of(policy)
    leaving = {job.name for job in snapshot.jobs if job.name in names and lendable(job, policy, tree)}
    if not leaving:
        return snapshot, git
    held = defaultdict[QueueName, Counter[GpuType]](Counter)
    for job in snapshot.jobs:
        if job.name in leaving:
            held[job.spec.queue].update(charge_of_tasks(job.placement, snapshot.gpu_types))
    jobs = tuple(_in_queue(job, lent_queue(job.spec.queue)) if job.name in leaving else job for job in snapshot.jobs)
    capacity, lowered = gpus_by_type(snapshot), _lent_below(tree, held)
    due = guarantees(tree, capacity)
    clocks = tuple(_less(clock, lowered, due) for clock in snapshot.in_flight.convergence)
    in_flight = msgspec.structs.replace(snapshot.in_flight, convergence=clocks)
    changed = msgspec.structs.replace(snapshot, jobs=jobs, in_flight=in_flight)
    own = tuple(
        _lowered(queue, lowered[queue.name], due) if queue.name in lowered else queue for queue in policy.queues
    )
    nothing = tuple(Quota(gpu_type, guaranteed=MilliGpu(0)) for gpu_type in sorted(capacity))
    lenders = tuple(
        Queue(lent_queue(queue), quota=nothing, weight=0, origin=tree.by_name[queue].origin) for queue in held
    )
    queues = tuple(sorted((*own, *lenders), key=lambda queue: queue.name))
    return changed, msgspec.structs.replace(policy, queues=queues)


def lent_jobs(snapshot: Snapshot) -> frozenset[JobName]:
    """The jobs that are lent in a round."""
    return frozenset(job.name for job in snapshot.jobs if job.spec.queue.startswith(_LENT))


def without_lent(snapshot: Snapshot) -> Snapshot:
    """A snapshot for readers: each job is of the queue to which it was submitted."""
    if not any(job.spec.queue.startswith(_LENT) for job in snapshot.jobs):
        return snapshot
    jobs = tuple(
        _in_queue(job, own_queue(job.spec.queue)) if job.spec.queue.startswith(_LENT) else job for job in snapshot.jobs
    )
    return msgspec.structs.replace(snapshot, jobs=jobs)


def without_lenders(policy: Policy) -> Policy:
    """A policy for readers: without the queues of what is lent."""
    if not any(queue.name.startswith(_LENT) for queue in policy.queues):
        return policy
    own = tuple(queue for queue in policy.queues if not queue.name.startswith(_LENT))
    return msgspec.structs.replace(policy, queues=own)


def _in_queue(job: Job, queue: QueueName) -> Job:
    return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, queue=queue))


def _lent_below(
    tree: QueueTree, held: Mapping[QueueName, Counter[GpuType]]
) -> defaultdict[QueueName, Counter[GpuType]]:
    """What each queue lends, with those below it."""
    lowered = defaultdict[QueueName, Counter[GpuType]](Counter)
    for queue, gpus in held.items():
        for above in tree.path(queue):
            lowered[above].update(gpus)
    return lowered


def _lowered(queue: Queue, lent: Mapping[GpuType, int], due: Mapping[QuotaLine, int]) -> Queue:
    def less(entry: Quota) -> Quota:
        if entry.max is None or not lent.get(entry.gpu_type):
            return entry
        line = QuotaLine(queue.name, entry.gpu_type)
        return msgspec.structs.replace(entry, max=_less_by(entry.max, lent[entry.gpu_type], due.get(line, 0)))

    return msgspec.structs.replace(queue, quota=tuple(map(less, queue.quota)))


def _less(
    clock: ConvergenceClock, lowered: Mapping[QueueName, Counter[GpuType]], due: Mapping[QuotaLine, int]
) -> ConvergenceClock:
    lent = lowered[clock.queue][clock.gpu_type] if clock.queue in lowered else 0
    if not lent:
        return clock
    limit = _less_by(clock.limit, lent, due.get(QuotaLine(clock.queue, clock.gpu_type), 0))
    return msgspec.structs.replace(clock, limit=limit)


def _less_by(limit: MilliGpu, lent: int, guaranteed: int) -> MilliGpu:
    """With so much less to hold, but no less than is guaranteed."""
    return MilliGpu(max(min(limit, guaranteed), limit - lent))
