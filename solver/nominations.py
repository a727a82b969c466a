"""Promises of earlier rounds: which can be kept now, which must be waited for, and which are to be withdrawn."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from solver.rules.entitlement import Headroom, Shares, shares_of
from solver.rules.entry import on_hold
from solver.rules.policy import Policy
from solver.rules.tree import QueueTree
from solver.world.cluster import DeviceId, GpuType, NodeName
from solver.world.inflight import Intent
from solver.world.snapshot import Snapshot
from solver.world.workload import Job, JobName


@dataclass(frozen=True, slots=True)
class Nomination:
    """A waiting job, what it was promised, and the jobs that it still waits for."""

    job: Job
    intent: Intent
    holders: tuple[JobName, ...]


@dataclass(frozen=True, slots=True)
class Nominations:
    """`snapshot`: the world without the promises that are withdrawn."""

    snapshot: Snapshot
    ready: tuple[Nomination, ...]
    waiting: tuple[Nomination, ...]
    withdrawn: tuple[Intent, ...]

    @property
    def jobs(self) -> frozenset[JobName]:
        """Who is provided for."""
        return frozenset(nomination.job.name for nomination in (*self.ready, *self.waiting))


def nominations_in(snapshot: Snapshot, policy: Policy) -> Nominations:
    """Judge every promise that is in flight."""
    pending = {job.name: job for job in snapshot.pending}
    shares = shares_of(snapshot, QueueTree.of(policy))
    usable = {gpu.id: node.name for node in snapshot.nodes if node.schedulable for gpu in node.gpus if gpu.healthy}
    good: list[Intent] = []
    withdrawn: list[Intent] = []
    for intent in snapshot.in_flight.nominations:
        job = pending.get(intent.job)
        kept = job is not None and intent.deadline > snapshot.time and _holds(job, intent, shares, usable, snapshot)
        (good if kept else withdrawn).append(intent)
    holder_of = {device: job.name for job in snapshot.jobs for task in job.placement for device in task.devices}
    leaving_for = [(intent.beneficiary, intent.job) for intent in snapshot.in_flight.evictions]
    judged = [_judged(pending[intent.job], intent, holder_of, leaving_for) for intent in good]
    return Nominations(
        _without(snapshot, withdrawn),
        tuple(nomination for nomination in judged if not nomination.holders),
        tuple(nomination for nomination in judged if nomination.holders),
        tuple(withdrawn),
    )


def _holds(job: Job, intent: Intent, shares: Shares, usable: dict[DeviceId, NodeName], snapshot: Snapshot) -> bool:
    """Whether the devices are all there and well, and the job may still have them."""
    tree, queue = shares.tree, job.spec.queue
    if not tree.is_leaf(queue) or on_hold(tree, queue):
        return False
    if any(usable.get(device) != task.node for task in intent.tasks for device in task.devices):
        return False
    charge = charge_of(intent, snapshot)
    others = shares.without([(queue, charge)])
    return not Headroom(others).blocking(queue, charge) and not _above_caps(job, charge, shares)


def _above_caps(job: Job, charge: dict[GpuType, int], shares: Shares) -> bool:
    return any(shares.users.used.get(line, 0) > shares.users.most(line) for line in shares.users.lines(job, charge))


def charge_of(intent: Intent, snapshot: Snapshot) -> dict[GpuType, int]:
    """What the promised devices cost their queue."""
    type_of = {node.name: node.gpu_type for node in snapshot.nodes}
    charge: dict[GpuType, int] = {}
    for task in intent.tasks:
        if task.devices:
            charge[type_of[task.node]] = charge.get(type_of[task.node], 0) + len(task.devices)
    return charge


def _judged(
    job: Job,
    intent: Intent,
    holder_of: dict[DeviceId, JobName],
    leaving_for: Iterable[tuple[JobName | None, JobName]],
) -> Nomination:
    devices = (device for task in intent.tasks for device in task.devices)
    holders = {holder_of[device] for device in devices if device in holder_of}
    # Some leave because they hold quota and not because they hold devices.
    holders |= {leaving for beneficiary, leaving in leaving_for if beneficiary == job.name}
    return Nomination(job, intent, tuple(sorted(holders)))


def _without(snapshot: Snapshot, withdrawn: Iterable[Intent]) -> Snapshot:
    gone = set(withdrawn)
    if not gone:
        return snapshot
    intents = tuple(intent for intent in snapshot.in_flight.intents if intent not in gone)
    return msgspec.structs.replace(snapshot, in_flight=msgspec.structs.replace(snapshot.in_flight, intents=intents))
