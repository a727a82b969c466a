"""What rounds would have done beside another scheduler, job by job, next to what that did."""

from __future__ import annotations

from typing import Literal

from solver.model.document import Document
from solver.model.quantities import Instant
from solver.model.workload import JobName, QueueName

StartBeside = Literal["earlier", "same", "later"]
"""`same`: within one look. `later`: no round before the real start would have started it; when one would have is not known."""


class ComparedJob(Document, frozen=True):
    """A job that was seen to wait. `started_at`: when the other scheduler really started it; None: it has not.

    `would_start_at`: the first round that would have started it. `gpus`: how many it asks for. `waits_for`: why the last round
    before the real start would not have started it, in words.
    """

    job: JobName
    queue: QueueName
    user: str
    gpus: float
    seen_at: Instant
    would_start_at: Instant | None = None
    started_at: Instant | None = None
    waits_for: str = ""

    def start(self, look_ms: int) -> StartBeside | None:
        """How both starts stand to each other; None: it has not started. `look_ms`: how far apart looks are."""
        if self.started_at is None:
            return None
        if self.would_start_at is None:
            return "later"
        return "earlier" if self.started_at - self.would_start_at > look_ms else "same"

    @property
    def ahead_ms(self) -> int:
        """By how much the round was ahead of the real start; 0 where one of them is not known."""
        if self.started_at is None or self.would_start_at is None:
            return 0
        return max(0, self.started_at - self.would_start_at)


class EvictedBeside(Document, frozen=True):
    """A running job that a round would have evicted, first at `at`, for `beneficiary` ("": a rule). `why`: in words."""

    job: JobName
    queue: QueueName
    user: str
    gpus: float
    at: Instant
    beneficiary: str
    why: str


class StartCounts(Document, frozen=True, omit_defaults=False):
    """How many jobs that really started would have started then, by rounds. `unseen`: they were not seen to wait before.

    `earlier_ms`: by how much in all. `would_start`: jobs that wait still, and a round would have started.
    """

    earlier: int = 0
    same: int = 0
    later: int = 0
    unseen: int = 0
    would_start: int = 0
    earlier_ms: int = 0
    evicted: int = 0
    really_evicted: int = 0


class UseBeside(Document, frozen=True, omit_defaults=False):
    """GPU-milliseconds over `measured_ms`, in which looks followed each other: what the cluster has, what was in use, and what the
    plan of each round would have put to use from there. `unmeasured_ms`: nothing was seen.
    """

    gpu_ms: float = 0.0
    used_ms: float = 0.0
    planned_ms: float = 0.0
    measured_ms: int = 0
    unmeasured_ms: int = 0


class ObservedComparison(Document, frozen=True, omit_defaults=False):
    """All of it, since observing began. Of the jobs the newest are listed, and all are counted.

    `looks` went well, `failed` did not; `failure`: what the last one that failed said. `doubts`: what can't be known, in words.
    """

    since: Instant
    until: Instant
    look_ms: int
    looks: int
    failed: int
    failure: str
    counts: StartCounts
    use: UseBeside
    starts: tuple[ComparedJob, ...] = ()
    evictions: tuple[EvictedBeside, ...] = ()
    doubts: tuple[str, ...] = ()
