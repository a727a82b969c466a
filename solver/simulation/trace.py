"""Jobs of a trace, how they fared, and the rounds that decided it."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from solver.model.document import Document
from solver.model.quantities import MILLI_PER_GPU, Duration, Instant, MilliGpu
from solver.model.snapshot import Snapshot
from solver.model.workload import Job, JobName, QueueName
from solver.plan.plan import Plan


class TraceJob(Document, frozen=True):
    """A job of a trace: what was asked for, and how long it ran once it ran."""

    job: Job
    duration: Duration


class Run(Document, frozen=True):
    """How one job of the trace fared. `gpus`: what it asked for, and once it runs what it has.

    `started_at` is its first start; `running_since` is set while it runs; `held_gpu_ms` counts what its ended attempts held.
    `longest_wait_ms`: the longest stretch in which it had nothing and wanted to start, of those that have ended.
    """

    job: JobName
    queue: QueueName
    gpus: MilliGpu
    submitted_at: Instant
    started_at: Instant | None = None
    ended_at: Instant | None = None
    running_since: Instant | None = None
    held_gpu_ms: int = 0
    evictions: int = 0
    longest_wait_ms: int = 0

    @property
    def wait_ms(self) -> int | None:
        """From submission to the first start; None while it waits."""
        return None if self.started_at is None else self.started_at - self.submitted_at

    def stopped(self, at: Instant) -> Run:
        """The same job once it does not run any more."""
        ran_ms = 0 if self.running_since is None else at - self.running_since
        held = self.held_gpu_ms + self.gpus * ran_ms // MILLI_PER_GPU
        return msgspec.structs.replace(self, running_since=None, held_gpu_ms=held)


@dataclass(frozen=True, slots=True)
class ReplayedRound:
    """One round of the replay, as it is decided."""

    snapshot: Snapshot
    plan: Plan
