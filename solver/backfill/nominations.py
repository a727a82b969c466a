"""Nominations of earlier rounds: which can be bound now, which still wait, and which are withdrawn."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from solver.backfill.nominated_hosts import NominatedHosts
from solver.backfill.pledges import Pledges
from solver.backfill.reservation_documents import overstays
from solver.capacity.sharing import Sharing, sharing_of
from solver.model.cluster import DeviceId, GpuType, Node, NodeName
from solver.model.inflight import Intent
from solver.model.node_sets import outside
from solver.model.pledges import NOTHING, Pledged, beside
from solver.model.round_cache import RoundCache
from solver.model.shape import SharedShape
from solver.model.snapshot import Snapshot
from solver.model.workload import Job, JobName, QueueName, TaskPlacement
from solver.policy.policy import Policy
from solver.policy.tree import QueueTree
from solver.queueing.entry import lets_in
from solver.quota.entitlement import QuotaHeadroom, Shares, charge_of_tasks, shares_of


@dataclass(frozen=True, slots=True)
class Nomination:
    """A job that waits, or moves, what it was promised, and the jobs whose end it still waits for: one that moves for its own.

    `pledged`: the GPUs that are partitioned anew for it then.
    """

    job: Job
    intent: Intent
    holders: tuple[JobName, ...]
    pledged: Pledged = NOTHING


@dataclass(frozen=True, slots=True)
class Nominations:
    """`snapshot`: the world without the promises that are withdrawn."""

    snapshot: Snapshot
    ready: tuple[Nomination, ...]
    waiting: tuple[Nomination, ...]
    withdrawn: tuple[Intent, ...]

    @property
    def jobs(self) -> frozenset[JobName]:
        """The jobs that are provided for."""
        return frozenset(nomination.job.name for nomination in (*self.ready, *self.waiting))


def nominations_in(snapshot: Snapshot, policy: Policy, kept: RoundCache | None = None) -> Nominations:
    """Judge every promise that is in flight."""
    if not snapshot.in_flight.nominations:
        return Nominations(snapshot, (), (), ())
    able = {job.name: job for job in snapshot.jobs if job.phase == "pending"} | _moving(snapshot)
    shares = shares_of(snapshot, QueueTree.of(policy), kept)
    sharing = sharing_of(policy, shares.tree, snapshot.nodes)
    sharers, pledges = _Sharers.of(snapshot, policy, sharing), Pledges.of(snapshot, policy, sharing)
    hosts, usable = NominatedHosts.of(snapshot), dict(_usable(snapshot, policy))
    good: list[Intent] = []
    withdrawn: list[Intent] = []
    for intent in snapshot.in_flight.nominations:
        job = able.get(intent.job)
        in_time = intent.deadline > snapshot.time
        stands = (
            job is not None
            and in_time
            and _holds(job, intent, shares, usable, pledges.of_job(job.name), snapshot, policy)
            and sharers.suit(job, intent)
            and pledges.stand(intent)
            and hosts.take(job, intent.tasks)
        )
        (good if stands else withdrawn).append(intent)
    promised_on = {task.node for known in good for task in known.tasks}
    parts = held_parts(snapshot, promised_on | {node for known in good for node, _ in pledges.of_job(known.job)})
    judged = [_judged(able[known.job], known, parts, hosts, pledges.of_job(known.job), snapshot) for known in good]
    return Nominations(
        _without(snapshot, withdrawn),
        tuple(nomination for nomination in judged if not nomination.holders),
        tuple(nomination for nomination in judged if nomination.holders),
        tuple(withdrawn),
    )


def _moving(snapshot: Snapshot) -> dict[JobName, Job]:
    """Jobs that still hold something, were asked to leave, and may have been promised where they go on."""
    asked = {(eviction.job, eviction.attempt) for eviction in snapshot.in_flight.evictions}
    return {job.name: job for job in snapshot.jobs if job.phase != "pending" and (job.name, job.attempt) in asked}


def _usable(snapshot: Snapshot, policy: Policy) -> Iterator[tuple[DeviceId, NodeName]]:
    """Whole GPUs, and instances of pools that have them, that are there and well, with their nodes, where anything was promised."""
    pools = {known.pool for known in policy.mig}
    promised = {task.node for intent in snapshot.in_flight.nominations for task in intent.tasks}
    for node in snapshot.nodes:
        for gpu in node.gpus if node.schedulable and node.name in promised else ():
            if gpu.healthy and gpu.instances is None:
                yield gpu.id, node.name
            elif gpu.healthy and node.pool in pools:
                yield from ((one.id_on(gpu.id), node.name) for one in gpu.instances or ())


def _holds(
    job: Job,
    intent: Intent,
    shares: Shares,
    usable: dict[DeviceId, NodeName],
    pledged: Pledged,
    snapshot: Snapshot,
    policy: Policy,
) -> bool:
    """Whether the devices are all there and well, or can be made, and the job may still have them."""
    tree, queue = shares.tree, job.spec.queue
    name = policy.priority_class_name(job)
    if policy.priority_class(job) is None or not lets_in(tree, queue, name, job.kubernetes_namespace):
        return False
    if any(outside(job.spec, intent.tasks, snapshot.node_sets)):
        return False
    there = [beside(task, pledged) for task in intent.tasks]
    if any(usable.get(device) != task.node for task in there for device in task.devices):
        return False
    if overstays(job, intent.tasks, snapshot, policy, tree):
        return False
    charge = charge_of_tasks(intent.tasks, snapshot.gpu_types)
    others = shares.without([(queue, charge)])
    return QuotaHeadroom(others).allows(queue, charge) and not _above_caps(job, charge, shares)


def _above_caps(job: Job, charge: dict[GpuType, int], shares: Shares) -> bool:
    costing = [gpu_type for gpu_type, milli in charge.items() if milli]
    return any(shares.users.used.get(line, 0) > shares.users.most(line) for line in shares.users.lines(job, costing))


Parts = Mapping[DeviceId, Sequence[tuple[JobName, TaskPlacement]]]
"""The jobs that hold a device, whole or a share of it."""


def held_parts(snapshot: Snapshot, nodes: Collection[NodeName]) -> Parts:
    """Every device of these nodes that running, starting and stopping jobs hold, and every GPU on which they do."""
    parts: dict[DeviceId, list[tuple[JobName, TaskPlacement]]] = defaultdict(list)
    for job in snapshot.jobs if nodes else ():
        for task in job.placement:
            if task.node in nodes:
                for device in _with_gpus(task):
                    parts[device].append((job.name, task))
    return parts


def _with_gpus(task: TaskPlacement) -> tuple[DeviceId, ...]:
    return (*task.devices, *task.on_gpus) if task.mig else task.devices


def in_the_way(
    tasks: Iterable[TaskPlacement], parts: Parts, leaving: Collection[JobName], pledged: Pledged = NOTHING
) -> set[JobName]:
    """The jobs that must be gone before tasks can be where they are promised: of those that share a GPU, the ones asked to leave.

    So it is with those on GPUs that are partitioned anew for these tasks.
    """
    anew = {name for _, gpu in pledged for name, held in parts.get(gpu, ()) if not held.mig or name in leaving}
    return anew | {
        name
        for task in tasks
        for device in task.devices
        for name, held in parts.get(device, ())
        if task.share is None or held.share is None or name in leaving
    }


def _judged(
    job: Job, intent: Intent, parts: Parts, hosts: NominatedHosts, pledged: Pledged, snapshot: Snapshot
) -> Nomination:
    stopping = {stop.job for stop in snapshot.in_flight.intents if stop.kind == "stop"}
    holders = in_the_way(intent.tasks, parts, stopping, pledged) | hosts.in_the_way(job, intent.tasks)
    # Some leave because they hold quota and not because they hold devices.
    holders |= {eviction.job for eviction in snapshot.in_flight.evictions if eviction.beneficiary == job.name}
    if job.phase != "pending":
        holders.add(job.name)
    return Nomination(job, intent, tuple(sorted(holders)), pledged)


@dataclass(frozen=True, slots=True)
class _Sharers:
    """Whether promised shares of GPUs still suit the policy, and the tasks that share them."""

    policy: Policy
    sharing: Sharing
    nodes: Mapping[NodeName, Node]
    queues: Mapping[DeviceId, Collection[QueueName]]

    @classmethod
    def of(cls, snapshot: Snapshot, policy: Policy, sharing: Sharing) -> _Sharers:
        """Jobs that hold and stay on what is promised in shares, and jobs that it is promised to."""
        shared = {
            device
            for intent in snapshot.in_flight.nominations
            for task in intent.tasks
            for device in (task.devices if task.share is not None else ())
        }
        leaving = {intent.job for intent in snapshot.in_flight.intents if intent.kind == "stop"}
        promised = {intent.job: intent.tasks for intent in snapshot.in_flight.nominations}
        queues: dict[DeviceId, set[QueueName]] = defaultdict(set)
        for job in snapshot.jobs:
            for task in promised.get(job.name, job.placement) if shared and job.name not in leaving else ():
                for device in shared.intersection(task.devices):
                    queues[device].add(job.spec.queue)
        return cls(policy, sharing, {node.name: node for node in snapshot.nodes}, queues)

    def suit(self, job: Job, intent: Intent) -> bool:
        """Whether each share is what its task is to have there, beside none but those it trusts."""
        shapes = {group.name: group.shape for group in job.spec.task_groups}
        known = self.policy.priority_class(job)
        for task in intent.tasks:
            if task.share is None:
                continue
            node, queue = self.nodes[task.node], job.spec.queue
            shape = self.sharing.served(
                shapes[task.group], node.gpu_type, queue, known.slo_class if known else "standard"
            )
            circle = shape.circle(node.pool) if isinstance(shape, SharedShape) else None
            if circle is None or (circle.mode, shape.cost) != (task.sharing, task.gpus):
                return False
            others = {other for device in task.devices for other in self.queues[device]}
            if any(self.sharing.domain(node.pool, other) != circle.domain for other in others):
                return False
        return True


def _without(snapshot: Snapshot, withdrawn: Iterable[Intent]) -> Snapshot:
    gone = set(withdrawn)
    if not gone:
        return snapshot
    intents = tuple(intent for intent in snapshot.in_flight.intents if intent not in gone)
    return msgspec.structs.replace(snapshot, in_flight=msgspec.structs.replace(snapshot.in_flight, intents=intents))
