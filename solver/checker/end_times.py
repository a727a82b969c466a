"""When work ends as far as a snapshot says, by plain lookups. Part of the checker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from solver.model.cluster import DeviceId
from solver.model.inflight import declared_name
from solver.model.quantities import Duration, Instant
from solver.model.snapshot import Snapshot
from solver.model.workload import Job, QueueName, TaskPlacement
from solver.plan.plan import Reserve
from solver.policy.policy import Policy


@dataclass(frozen=True, slots=True)
class KnownEndTimes:
    """How long most jobs of a queue and class run, and from when devices are reserved for a gang, or kept by a document."""

    durations: Mapping[tuple[QueueName, str], Duration]
    reserved_from: Mapping[DeviceId, Instant]

    @classmethod
    def of(cls, snapshot: Snapshot, policy: Policy, made: Iterable[Reserve] = ()) -> Self:
        """What a snapshot says, and what a plan makes of its reservations."""
        durations = {(one.queue, one.priority_class): one.duration for one in snapshot.in_flight.durations}
        reserved: dict[DeviceId, Instant] = {}
        known = [(held.holder, held.start, held.tasks) for held in snapshot.in_flight.reservations]
        for holder, start, tasks in (*known, *((step.job, step.start, step.tasks) for step in made)):
            document = policy.reservation(holder)
            # Of documents only those that have jobs leave.
            if declared_name(holder) is None or (document is not None and document.evict != "none"):
                for device in (device for task in tasks for device in task.devices):
                    reserved[device] = min(start, reserved.get(device, start))
        return cls(durations, reserved)

    def limit(self, job: Job, stated: Duration | None) -> Duration | None:
        """How long a job runs at most, or without a stated limit as most of its like did; None: nobody knows."""
        if stated is not None or job.spec.type == "service":
            return stated
        return self.durations.get((job.spec.queue, job.spec.priority_class))

    def reserved_from_of(self, tasks: Iterable[TaskPlacement]) -> Instant | None:
        """From when some of the devices are reserved for a gang: who has them may be asked to leave for that; None: never."""
        if not self.reserved_from:
            return None
        starts = (self.reserved_from.get(device) for task in tasks for device in task.devices)
        return min((start for start in starts if start is not None), default=None)
