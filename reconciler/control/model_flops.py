"""What running jobs report of their own work, beside what their GPUs could do: tokens and floating point operations, and MFU.

MFU, model FLOPs utilisation, is what a model needs in floating point operations a second, divided by the peak of the GPUs that do
it (PaLM, arXiv 2204.02311, appendix B). A job states what it needs; operations that it repeats to save memory are not in it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from reconciler.lifecycle.jobs.backend_reports import BackendReports
from reconciler.model.gpu_peaks import PeakOf
from reconciler.protocols.backend import ENDED, TaskStatus
from solver.model.cluster import GpuType
from solver.model.document import Document
from solver.model.quantities import Duration, Instant
from solver.model.snapshot import Snapshot
from solver.model.workload import Job, QueueName, TaskPlacement
from solver.plan.reason import count

FRESH: Final = Duration(15 * 60_000)
"""What was reported before says nothing of now: a step takes minutes, and rarely more."""

_PREFIXES: Final = ((18, "E"), (15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k"))

TypeOf = Callable[[TaskPlacement], GpuType]


class ReportedWork(Document, frozen=True, omit_defaults=False):
    """What tasks with whole GPUs report: of `gpus` GPUs, `flops` and `tokens` a second; 0: none of them says.

    `peak`: floating point operations a second that those GPUs could do which report some; null: not known of one of their types.
    `mfu`: the first by the last, from 0 to 1; null: not known, or more than there can be, so that the report is wrong.
    """

    gpus: int
    flops: float
    tokens: float
    peak: float | None
    mfu: float | None

    def __str__(self) -> str:
        """MFU, or why that is not known; operations and tokens a second."""
        told = [*self._of_flops(), *([f"{short(self.tokens)}tokens/s"] if self.tokens else [])]
        return ", ".join(told)

    def _of_flops(self) -> Iterator[str]:
        if not self.flops:
            return
        if self.mfu is not None and self.peak is not None:
            yield f"MFU {100 * self.mfu:.1f} % of {short(self.peak)}FLOP/s"
        yield f"{short(self.flops)}FLOP/s on {count(self.gpus, 'GPU')}"
        if self.peak is None:
            yield "MFU unknown: no peak is known of this GPU type"
        elif self.mfu is None:
            yield f"MFU unknown: that is more than the {short(self.peak)}FLOP/s that they can do"


class WorkLine(Document, frozen=True, omit_defaults=False):
    """All that is reported of one GPU type in one queue and class; "" is the class of jobs that name none."""

    queue: QueueName
    priority_class: str
    gpu_type: GpuType
    work: ReportedWork


class _Told(NamedTuple):
    gpu_type: GpuType
    gpus: int
    flops: float
    tokens: float


def short(value: float) -> str:
    """Three digits and the prefix of a thousand: `3.17 P`."""
    for power, prefix in _PREFIXES:
        if value >= 10**power:
            return f"{value / 10**power:.3g} {prefix}"
    return f"{value:.3g} "


def work_of(
    tasks: Iterable[TaskPlacement], said: Iterable[TaskStatus], type_of: TypeOf, peak_of: PeakOf, now: Instant
) -> ReportedWork | None:
    """Of one job; None: it reports nothing of the kind."""
    return _added_up(_told(tasks, said, type_of, now), peak_of)


def work_lines(snapshot: Snapshot, sighted: BackendReports, peak_of: PeakOf, now: Instant) -> tuple[WorkLine, ...]:
    """Of all jobs, by queue, class and type."""
    found = defaultdict[tuple[QueueName, str, GpuType], list[_Told]](list)
    for job, told in _told_of_all(snapshot, sighted, now):
        found[job.spec.queue, job.spec.priority_class, told.gpu_type].append(told)
    return tuple(
        WorkLine(*key, work) for key, some in sorted(found.items()) if (work := _added_up(some, peak_of)) is not None
    )


def together(some: Iterable[ReportedWork]) -> ReportedWork | None:
    """Of several lines, as far as an MFU of them is known; None: of none is it."""
    known = [work for work in some if work.mfu is not None and work.peak is not None]
    if not known:
        return None
    flops, peak = sum(work.flops for work in known), sum(work.peak or 0.0 for work in known)
    return ReportedWork(
        sum(work.gpus for work in known), flops, sum(work.tokens for work in known), peak, _mfu(flops, peak)
    )


def _told_of_all(snapshot: Snapshot, sighted: BackendReports, now: Instant) -> Iterator[tuple[Job, _Told]]:
    types = snapshot.gpu_types
    for job in snapshot.jobs:
        if job.placement:
            said = sighted.attempt(job.name, job.attempt).tasks
            for told in _told(job.placement, said, lambda task: types.get(task.node, GpuType("")), now):
                yield job, told


def _told(tasks: Iterable[TaskPlacement], said: Iterable[TaskStatus], type_of: TypeOf, now: Instant) -> Iterator[_Told]:
    """Each task that holds whole GPUs, and has said something lately."""
    reports = {(one.group, one.index): one.progress for one in said if one.state not in ENDED}
    for task in tasks:
        progress = reports.get((task.group, task.index))
        if progress is None or not task.devices or task.mig is not None or task.share is not None:
            continue
        if (progress.flops or progress.tokens) and -FRESH < now - progress.at < FRESH:
            yield _Told(type_of(task), len(task.devices), progress.flops, progress.tokens)


def _added_up(told: Iterable[_Told], peak_of: PeakOf) -> ReportedWork | None:
    told = list(told)
    if not told:
        return None
    flops, counted = sum(one.flops for one in told), [one for one in told if one.flops]
    peaks = [None if (peak := peak_of(one.gpu_type)) is None else one.gpus * peak for one in counted]
    peak = None if not peaks or None in peaks else sum(each for each in peaks if each is not None)
    return ReportedWork(sum(one.gpus for one in told), flops, sum(one.tokens for one in told), peak, _mfu(flops, peak))


def _mfu(flops: float, peak: float | None) -> float | None:
    return flops / peak if peak and 0 < flops <= peak else None
