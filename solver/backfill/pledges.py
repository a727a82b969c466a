"""Judges promises on GPUs that have to be partitioned anew, and says what these become once all jobs have left that have to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from solver.capacity.free_capacity import FreeCapacity
from solver.capacity.mig_gpus import MigGpu, MigRule, is_allowed, settled
from solver.capacity.partitioning import changes_left, pool_rules
from solver.capacity.sharing import Sharing
from solver.model.cluster import DeviceId, NodeName
from solver.model.inflight import Intent
from solver.model.mig import Geometry, PlacedInstance
from solver.model.pledges import NOTHING, Pledged, pledges_in
from solver.model.snapshot import Snapshot
from solver.model.workload import JobName, TaskPlacement
from solver.policy.policy import Policy


@dataclass(slots=True)
class Pledges:
    """The promises of a snapshot on such GPUs. `room`: what there will be when all jobs have left that were asked to.

    `in_use`: GPUs of which some work has all or a part. `too_many`: by how many GPUs, in each pool, more are pledged than may be
    changed.
    """

    room: FreeCapacity | None
    by_job: Mapping[JobName, Pledged]
    in_use: frozenset[DeviceId] = frozenset()
    too_many: Counter[str] = field(default_factory=Counter)
    taken: set[DeviceId] = field(default_factory=set)

    @classmethod
    def of(cls, snapshot: Snapshot, policy: Policy, sharing: Sharing) -> Pledges:
        """Those of a snapshot."""
        by_job = pledges_in(snapshot.nodes, snapshot.in_flight)
        if not by_job:
            return cls(None, {})
        leaving = {intent.job for intent in snapshot.in_flight.intents if intent.kind == "stop"}
        room = FreeCapacity.of(snapshot, sharing.domain, pool_rules(policy, snapshot), leaving)
        too_many = Counter({pool: -left for pool, left in changes_left(policy, snapshot).items() if left < 0})
        in_use = frozenset(gpu for job in snapshot.jobs for task in job.placement for gpu in task.on_gpus)
        return cls(room, by_job, in_use, too_many)

    def of_job(self, job: JobName) -> Pledged:
        """The GPUs that are pledged to a job."""
        return self.by_job.get(job, NOTHING)

    def stand(self, intent: Intent) -> bool:
        """Whether all that it needs can still be partitioned for it, within the changes that are left; once for each promise."""
        pledged = self.of_job(intent.job)
        if not pledged:
            return True
        if self.room is None or self.taken & {device for _, device in pledged}:
            return False
        if not all(self._can_be(self.room, intent, node, device) for node, device in pledged):
            return False
        pools = Counter(self.room.nodes[self.room.index[node]].pool for node, _ in pledged)
        if pools & self.too_many:
            self.too_many -= pools
            return False
        self.taken |= {device for _, device in pledged}
        return True

    def _can_be(self, room: FreeCapacity, intent: Intent, node: NodeName, device: DeviceId) -> bool:
        number, gpu = room.index[node], room.partitions.aside.get(device)
        rule = room.partitions.rules.get(number)
        if gpu is None or rule is None or not rule.changes or not room.open_nodes[number]:
            return False
        if not rule.drains and device in self.in_use:
            return False
        wanted = _wanted(rule, intent.tasks, device)
        if wanted is None:
            return not gpu.held
        return not set(wanted) & set(gpu.held) and is_allowed(rule, gpu.with_held(*wanted).held)


def geometries(
    room: FreeCapacity, intent: Intent, pledged: Pledged
) -> Iterator[tuple[NodeName, MigGpu, Geometry | None]]:
    """What each GPU becomes that is pledged to a job that begins now; None: whole."""
    for node, device in sorted(pledged):
        rule, gpu = room.partitions.rules[room.index[node]], room.partitions.aside[device]
        wanted = _wanted(rule, intent.tasks, device)
        yield node, gpu, None if wanted is None else settled(rule, gpu.with_held(*wanted))


def _wanted(rule: MigRule, tasks: tuple[TaskPlacement, ...], device: DeviceId) -> Geometry | None:
    """The instances that are promised on a GPU; None: it is promised as a whole."""
    if any(device in task.devices for task in tasks):
        return None
    named = (slot.instance for task in tasks for slot in task.slots if slot.gpu == device)
    found = ((rule.profile(instance.profile), instance.start) for instance in named)
    return tuple(PlacedInstance(start, profile) for profile, start in found if profile)
