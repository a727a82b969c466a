"""How long jobs of each queue and size have run, in the order in which they were submitted. Part of the checker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from solver.model.quantities import MilliGpu
from solver.model.snapshot import Snapshot
from solver.model.workload import Job, JobName, QueueName


class RunTime(NamedTuple):
    """One job: how long it `ran`, in milliseconds, and whether it has `ended`."""

    submitted_at: int
    name: JobName
    ran: float
    ended: bool


@dataclass(slots=True)
class RunTimes:
    """Jobs of one queue and size, by submission."""

    lives: list[RunTime] = field(default_factory=list)
    places: dict[JobName, int] = field(default_factory=dict)

    def beside(self, name: JobName, most: int) -> Sequence[tuple[int, float, bool]]:
        """At most so many to each side of one: how far away, how long it ran, whether it has ended."""
        me = self.places[name]
        first = max(0, me - most)
        near = enumerate(self.lives[first : me + most + 1], first)
        return [(abs(place - me), life.ran, life.ended) for place, life in near if place != me]


Lives = dict[tuple[QueueName, MilliGpu], RunTimes]
"""By queue and by the GPUs that are asked for."""


def lives_of(snapshot: Snapshot) -> Lives:
    """Of all who live, and all who have ended that the snapshot knows."""
    found: defaultdict[tuple[QueueName, MilliGpu], RunTimes] = defaultdict(RunTimes)
    for job in snapshot.jobs:
        life = RunTime(job.submitted_at, job.name, ran(job, snapshot.time), ended=False)
        found[job.spec.queue, job.spec.gpus].lives.append(life)
    for past in snapshot.in_flight.history:
        life = RunTime(past.submitted_at, past.job, float(past.ran), ended=True)
        found[past.queue, past.gpus].lives.append(life)
    for likes in found.values():
        likes.lives.sort()
        for place, life in enumerate(likes.lives):
            likes.places.setdefault(life.name, place)
    return dict(found)


def ran(job: Job, now: int) -> float:
    """Milliseconds that a live job has run in all its attempts."""
    running = 0 if job.started_at is None else max(0, now - job.started_at)
    return job.served_gpu_ms * 1000 / max(1, job.spec.gpus) + running
