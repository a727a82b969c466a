"""What of jobs, live and ended, an account of the past needs beside what they held.

The conformance suite is tests/contracts/test_past_jobs.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from solver.model.quantities import Instant, MilliGpu
from solver.model.workload import JobName, QueueName


class PastJob(NamedTuple):
    """One job: what it is, what its whole gang asks for, and from when to when it was there (None: it still is).

    `gpu_types`: those that its tasks name, sorted; (): any will do. `priority_class`: as it names it, "" where it names none.
    """

    name: JobName
    queue: QueueName
    user: str
    priority_class: str
    gpus: MilliGpu
    gpu_types: tuple[str, ...]
    submitted_at: Instant
    ended_at: Instant | None


class PastJobs(Protocol):
    """What there was of jobs."""

    def between(self, start: Instant, end: Instant) -> tuple[PastJob, ...]:
        """Those that were there or held something at a moment of a window, by name."""

    def saved(self, start: Instant) -> Mapping[tuple[JobName, int], Instant]:
        """When each attempt saved its work last, as far as that is not known to be corrupt; only what is later than an instant."""
