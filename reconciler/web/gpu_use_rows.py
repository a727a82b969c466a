"""What GPUs do now, as rows of tables: by type, queue and job, with the gap between what is allocated and what is active."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from reconciler.control.model_flops import ReportedWork, WorkLine, together
from reconciler.control.use_summary import GpuUtilisation, UseNow
from reconciler.model.budget import BudgetStanding
from solver.model.snapshot import Snapshot
from solver.model.workload import Job, JobName, QueueName

BAR_WIDTH: Final = 300
IDLE_MIN: Final = 0.5
"""Of a job's GPUs, added up: less is what the busiest job has between two steps."""


class UseBar(NamedTuple):
    """Lengths of the parts of a bar, one after the other."""

    active: float
    idle: float
    unknown: float
    free: float


class UseRow(NamedTuple):
    """GPUs of one type, in the cluster or in a queue. `healthy` None: of a queue, of which that is not known."""

    name: str
    gpu_type: str
    allocated: int
    measured: int
    active: float
    healthy: int | None
    bar: UseBar
    work: ReportedWork | None = None

    @property
    def idle(self) -> float:
        """Measured GPUs, less what is active of them: the gap."""
        return self.measured - self.active

    @property
    def allocated_share(self) -> float | None:
        """Of the healthy GPUs; None: there are none."""
        return self.allocated / self.healthy if self.healthy else None

    @property
    def active_share(self) -> float | None:
        """Of the measured GPUs; None: it is not known."""
        return self.active / self.measured if self.measured else None


class HolderRow(NamedTuple):
    """A job with the GPUs that it holds. `name` "": one that may not be named to the caller."""

    name: str
    queue: QueueName
    user: str
    gpus: int
    measured: int
    active: float

    @property
    def idle(self) -> float:
        """Measured GPUs, less what is active of them."""
        return self.measured - self.active

    @property
    def active_share(self) -> float | None:
        """Of the measured GPUs; None: it is not known."""
        return self.active / self.measured if self.measured else None


class BudgetRow(NamedTuple):
    """How a budget stands. `bar`: how long of 100 what is spent is; `link`: to its line in Git."""

    standing: BudgetStanding
    bar: int
    link: str


def type_rows(lines: Iterable[GpuUtilisation], reported: Iterable[WorkLine] = ()) -> list[UseRow]:
    """Of the whole cluster, the type with the most GPUs first; all bars have one scale."""
    ordered = sorted(lines, key=lambda line: -(line.healthy or 0))
    return _rows([("", line) for line in ordered], [("", line) for line in reported])


def queue_rows(queues: Mapping[QueueName, Iterable[GpuUtilisation]], reported: Iterable[WorkLine] = ()) -> list[UseRow]:
    """Of what queues hold themselves, the one with the widest gap first."""
    found = [(name, line) for name, lines in queues.items() for line in lines]
    ordered = sorted(found, key=lambda one: (one[1].active - one[1].measured, -one[1].allocated, one[0]))
    return _rows(ordered, [(line.queue, line) for line in reported])


def idle_holders(use: UseNow, snapshot: Snapshot, sees: Callable[[QueueName, str], bool]) -> Iterator[HolderRow]:
    """Jobs that hold GPUs which do nothing, those with the most of them first. What is not measured is not idle."""
    known = {job.name: job for job in snapshot.jobs if job.name in use.jobs}
    idle = [(name, of) for name, of in use.jobs.items() if of.measured - of.active >= IDLE_MIN and name in known]
    for name, of in sorted(idle, key=lambda one: (one[1].active - one[1].measured, one[0])):
        job = known[name]
        shown = (name, job.user) if sees(job.spec.queue, job.user) else ("", "")
        yield HolderRow(shown[0], job.spec.queue, shown[1], of.gpus, of.measured, of.active)


def holder_of(use: UseNow, job: JobName, known: Job | None) -> HolderRow | None:
    """A job by itself; None where it holds no GPU."""
    of = use.jobs.get(job)
    if of is None or known is None:
        return None
    return HolderRow(job, known.spec.queue, known.user, of.gpus, of.measured, of.active)


def budget_rows(standings: Iterable[BudgetStanding], link_of: Callable[[str], str]) -> list[BudgetRow]:
    """The fullest first."""
    ordered = sorted(standings, key=lambda one: (-one.spent / one.limit, one.budget))
    return [BudgetRow(one, min(100, one.percent), link_of(one.origin)) for one in ordered]


def _rows(named: Sequence[tuple[str, GpuUtilisation]], reported: Iterable[tuple[str, WorkLine]]) -> list[UseRow]:
    works = defaultdict[tuple[str, str], list[ReportedWork]](list)
    for name, told in reported:
        works[name, told.gpu_type].append(told.work)
    longest = max((max(line.healthy or 0, line.allocated) for _, line in named), default=0)
    scale = BAR_WIDTH / longest if longest else 0.0
    return [
        UseRow(
            *(name, line.gpu_type, line.allocated, line.measured, line.active, line.healthy),
            _bar(line, scale),
            together(works[name, line.gpu_type]),
        )
        for name, line in named
    ]


def _bar(line: GpuUtilisation, scale: float) -> UseBar:
    free = max(0, (line.healthy or 0) - line.allocated)
    parts = line.active, line.measured - line.active, line.allocated - line.measured, free
    return UseBar(*(round(part * scale, 1) for part in parts))
