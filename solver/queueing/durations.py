"""How long jobs without a time limit can be expected to run: as long as most of their queue and class have run before."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from math import ceil

from solver.model.inflight import DurationQuantile, Ended
from solver.model.quantities import Duration
from solver.model.workload import Job, QueueName

HISTORY_JOBS = 2000
"""Ended jobs of which run times are looked at in a round, the last submitted: enough neighbours for all that lately arrived."""

ENDED_MIN = 10
"""Jobs of a queue and class that must have ended before anything is expected of the next."""


def quantiles(ended: Iterable[Ended], quantile: float) -> tuple[DurationQuantile, ...]:
    """Of each queue and class that has enough history the duration within which this part of its jobs had ended; sorted."""
    ran: dict[tuple[QueueName, str], list[Duration]] = defaultdict(list)
    for known in ended if quantile else ():
        ran[known.queue, known.priority_class].append(known.ran)
    return tuple(
        DurationQuantile(*of, quantile, sorted(known)[ceil(quantile * len(known)) - 1])
        for of, known in sorted(ran.items())
        if len(known) >= ENDED_MIN
    )


Expected = Mapping[tuple[QueueName, str], Duration]


def expected(known: Iterable[DurationQuantile]) -> Expected:
    """The durations by queue and class."""
    return {(one.queue, one.priority_class): one.duration for one in known}


def expected_of(job: Job, durations: Expected) -> Duration | None:
    """How long a job runs as far as history says; services have no end."""
    return None if job.spec.type == "service" else durations.get((job.spec.queue, job.spec.priority_class))
