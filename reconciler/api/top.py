"""What is answered to the question what runs now: a line for each job, how far it is and what it uses."""

from __future__ import annotations

from reconciler.api.payloads import Payload
from reconciler.control.model_flops import ReportedWork
from reconciler.model.job_record import JobState
from reconciler.protocols.backend import MemoryUse, Progress
from solver.model.document import Document
from solver.model.quantities import Instant, MilliGpu
from solver.model.workload import JobName, QueueName


class TopLine(Document, frozen=True, omit_defaults=False):
    """A job that holds devices. `running`: how many of its `tasks` run.

    `progress` is that of the task that is furthest behind, `memory` of the one that had the most of what it asked for, or where
    none asks, the most: null where no task has said, or was measured. `active_at`: when it did something last; null: not watched.
    `active`: how active the `measured_gpus` of its GPUs are, in percent; null: of none is it known. `work`: what its tasks report
    of tokens, operations and MFU; null: nothing, or not lately.
    """

    name: JobName
    queue: QueueName
    state: JobState
    attempt: int
    tasks: int
    running: int
    gpus: MilliGpu
    since: Instant | None
    progress: Progress | None = None
    memory: MemoryUse | None = None
    active_at: Instant | None = None
    measured_gpus: int = 0
    active: float | None = None
    work: ReportedWork | None = None


class Top(Payload, frozen=True, kw_only=True):
    """Every job that holds devices, those with the most GPUs first."""

    items: tuple[TopLine, ...]
