"""What a review says of jobs: which give something up, start, wait shorter or longer, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from reconciler.analysis.reports.fates import Fates, Jobs
from reconciler.analysis.reports.outline import ReportSection, UntrustedText, When, Words
from reconciler.analysis.reports.paths import Paths
from reconciler.model.review_findings import IdleCatch, JobChange, Loss, Requeued, Review, Stranded, Unrestartable
from reconciler.model.spans import span
from solver.model.quantities import Instant, MilliGpu
from solver.plan.reason import count, sentence

_WHY = {
    "move": "fits once it has moved",
    "reclaim": "takes back what is borrowed",
    "preempt": "outranks it in its queue",
    "turn": "has waited longer above its guarantee",
    "straddle": "is inside its own guarantee",
    "drain": "the queue is drained",
    "converge": "a lowered limit is to be kept",
    "return": "a reservation is due",
    "overdue": "the tasks were not ready in time",
}
"""Means and rules of `EvictedBy` and `ShrunkBy`, as what they say of the job that gets the GPUs, or of the rule itself."""


def lost_sections(found: Review, fates: Fates, paths: Paths, when: When) -> Iterator[ReportSection]:
    """Running jobs that give something up because of the change."""
    for title, jobs in (
        ("Evicted by the change", fates.evicted),
        ("Shrunk by the change", fates.shrunk),
        ("Moved by the change", fates.moved),
    ):
        if jobs:
            rows = tuple(_lost_row(job, found.time, paths, when) for job in jobs)
            yield ReportSection(
                title, rows, _LOST, frozenset({"GPUs", "GPU-hours lost"}), (f"Together {sum_of(jobs)}.",), weighty=True
            )


def stranded_sections(found: Review, paths: Paths) -> Iterator[ReportSection]:
    """Jobs that run on nodes that are removed."""
    if found.stranded:
        rows = tuple(_stranded_row(one, paths) for one in found.stranded)
        note = ("They run on, and what they hold there is neither counted nor taken back.",)
        yield ReportSection(
            "Run on nodes that are removed", rows, (*_NAMED, "Nodes"), frozenset({"GPUs"}), note, weighty=True
        )


def unrestartable_sections(found: Review, paths: Paths) -> Iterator[ReportSection]:
    """Running jobs that could not start again under the head."""
    for title, jobs, weighty in (
        ("Run, and could never start again", found.newly_unrestartable, True),
        ("Run, and could never start again under either", [one for one in found.unrestartable if one.already], False),
    ):
        if jobs:
            rows = tuple(_unrestartable_row(one, paths) for one in jobs)
            note = ("They run on; once one is evicted, fails or moves to a new attempt, it waits for ever.",)
            yield ReportSection(title, rows, (*_NAMED, "Why"), frozenset({"GPUs"}), note, weighty=weighty)


def requeued_sections(found: Review, paths: Paths) -> Iterator[ReportSection]:
    """Jobs whose pods mean another queue."""
    if found.requeued:
        rows = tuple(_requeued_row(one, paths) for one in found.requeued)
        note = (
            "Their pods name no queue, or give it a name of their namespace. From the change on they count for the queue that is "
            "meant then; those that run go on, and where none is meant they count for none.",
        )
        headings = ("Job", "Namespace", "GPUs", "Names", "From queue", "To queue")
        yield ReportSection("In another queue", rows, headings, frozenset({"GPUs"}), note, weighty=True)


def _requeued_row(one: Requeued, paths: Paths) -> tuple[Words, ...]:
    queues = ((UntrustedText(paths.path(queue)),) if queue else ("none",) for queue in (one.before, one.after))
    called: Words = (UntrustedText(one.called),) if one.called else ("no queue",)
    return (UntrustedText(one.job),), (UntrustedText(one.namespace),), (str(one.gpus),), called, *queues


def idle_sections(found: Review, paths: Paths, when: When) -> Iterator[ReportSection]:
    """Running jobs that an IdlePolicy would warn now."""
    for title, jobs, weighty in (
        ("Would be warned for idle GPUs", [one for one in found.idle if not one.already], True),
        ("Are idle under either", [one for one in found.idle if one.already], False),
    ):
        if jobs:
            rows = tuple(_idle_row(one, paths, when) for one in jobs)
            note = (
                "By what their GPUs did lately. What follows comes after the grace, if they do nothing until then.",
            )
            headings = (*_NAMED, "Idle since", "IdlePolicy", "Then")
            yield ReportSection(title, rows, headings, frozenset({"GPUs"}), note, weighty=weighty)


def _idle_row(one: IdleCatch, paths: Paths, when: When) -> tuple[Words, ...]:
    named = (UntrustedText(one.job),), (UntrustedText(paths.path(one.queue)),), (str(one.gpus),)
    return *named, (when(one.since),), (UntrustedText(one.policy),), (one.action,)


def _unrestartable_row(one: Unrestartable, paths: Paths) -> tuple[Words, ...]:
    named = (UntrustedText(one.job),), (UntrustedText(paths.path(one.queue)),), (str(one.gpus),)
    return *named, _why(one.reasons, one.would_help, can_run=False)


def _stranded_row(one: Stranded, paths: Paths) -> tuple[Words, ...]:
    more = len(one.nodes) - _NODES_MAX
    nodes: Words = (UntrustedText(", ".join(one.nodes[:_NODES_MAX])), f" and {more} more" if more > 0 else "")
    return (UntrustedText(one.job),), (UntrustedText(paths.path(one.queue)),), (str(one.gpus),), nodes


_NODES_MAX = 4
"""Of a job's nodes: enough to know which machines are meant."""
_LOST = ("Job", "Queue", "GPUs", "GPU-hours lost", "Asked", "Grace", "For")


def sum_of(jobs: Jobs) -> str:
    """`64 GPUs, 12.5 GPU-hours of work lost`."""
    losses = [job.loss for job in jobs if job.loss]
    gpus = MilliGpu(sum(loss.gpus for loss in losses))
    return f"{count(gpus.number, 'GPU')}, {hours(sum(loss.lost_gpu_h for loss in losses))} GPU-hours of work lost"


def hours(gpu_h: float) -> str:
    """GPU-hours to a tenth."""
    return f"{gpu_h:,.1f}"


def _lost_row(job: JobChange, now: Instant, paths: Paths, when: When) -> tuple[Words, ...]:
    loss = job.loss
    if loss is None:
        return _named(job, paths)
    asked: Words = ("now",) if loss.at <= now else (when(loss.at),)
    return (
        (UntrustedText(job.job),),
        (UntrustedText(paths.path(job.queue)),),
        (str(loss.gpus),),
        (hours(loss.lost_gpu_h),),
        asked,
        (str(loss.grace),),
        _for_whom(loss, paths),
    )


def _for_whom(loss: Loss, paths: Paths) -> Words:
    """The job that gets the GPUs, and by what right; or the rule that asks for it."""
    why = _WHY.get(loss.why) or UntrustedText(loss.why)
    if loss.by is None:
        return "no job: ", why
    queue: Words = (" of ", UntrustedText(paths.path(loss.by_queue))) if loss.by_queue else ()
    return UntrustedText(loss.by), *queue, ", which ", why


def changed_sections(found: Review, fates: Fates, paths: Paths) -> Iterator[ReportSection]:
    """Pending jobs that fare differently."""
    reasons = _reasons_row
    yield from _section("Start now, and would not", fates.starts, paths, _base_start(found), "Would start")
    yield from _section("No longer start now", fates.starts_no_more, paths, _head_start(found), "Starts", reasons)
    yield from _section("Inadmissible, and were not", fates.never, paths, None, "", reasons)
    yield from _section(
        "Admissible, and were not; they wait", fates.admitted, paths, _head_start(found), "Starts", reasons
    )
    for title, jobs in (("Wait longer", fates.later), ("Wait shorter", fates.sooner)):
        if jobs:
            rows = tuple(_wait_row(job, found.time, paths) for job in jobs)
            yield ReportSection(title, rows, _WAIT, frozenset({"GPUs", "Would start", "Starts", "Difference"}))


_WAIT = ("Job", "Queue", "GPUs", "Would start", "Starts", "Difference")


def unchanged_sections(found: Review, fates: Fates, paths: Paths) -> Iterator[ReportSection]:
    """Jobs that fare the same under both, and those that the change spares."""
    for title, jobs in (
        ("Spared by the change", fates.spared),
        ("Give something up under both", fates.lost_anyway),
    ):
        if jobs:
            yield ReportSection(title, tuple(_named(job, paths) for job in jobs), _NAMED, frozenset({"GPUs"}))
    yield from _section("Would still wait", fates.waits_anyway, paths, _head_start(found), "Starts", _reasons_row)
    yield from _section("Inadmissible under both", fates.never_anyway, paths, None, "", _reasons_row)
    yield from _section("Start under both", fates.starts_anyway, paths, None, "")


_NAMED = ("Job", "Queue", "GPUs")


def _section(
    title: str,
    jobs: Jobs,
    paths: Paths,
    starts: Callable[[JobChange], Words] | None,
    starts_heading: str,
    why: Callable[[JobChange], Words] | None = None,
) -> Iterator[ReportSection]:
    """A table of pending jobs, with when they start and why they wait where that is asked for."""
    headings = (*_NAMED, *((starts_heading,) if starts else ()), *(("Why",) if why else ()))
    rows = tuple(
        (*_named(job, paths), *((starts(job),) if starts else ()), *((why(job),) if why else ())) for job in jobs
    )
    if rows:
        yield ReportSection(title, rows, headings, frozenset({"GPUs", starts_heading}))


def _named(job: JobChange, paths: Paths) -> tuple[Words, ...]:
    return (UntrustedText(job.job),), (UntrustedText(paths.path(job.queue)),), (str(job.gpus),)


def _reasons_row(job: JobChange) -> Words:
    return _why(job.reasons, job.would_help, can_run=job.after != "inadmissible")


def _why(reasons: Sequence[str], helps: Sequence[str], *, can_run: bool) -> Words:
    """Reasons, and what would help: of jobs that can run in clauses, of others in sentences."""
    if not reasons:
        return ()
    told = "; ".join(reasons)
    if not helps:
        return (UntrustedText(told),)
    return (
        UntrustedText(f"{told}; would help: {'; '.join(helps)}" if can_run else f"{sentence(told)} {' '.join(helps)}"),
    )


def _wait_row(job: JobChange, now: Instant, paths: Paths) -> tuple[Words, ...]:
    delay_ms = job.delay_ms
    sign = "" if delay_ms is None else "+" if delay_ms > 0 else "-"
    difference = "" if delay_ms is None else f"{sign}{span(abs(delay_ms))}"
    return (*_named(job, paths), _start(job.starts_before, now), _start(job.starts_after, now), (difference,))


def _base_start(found: Review) -> Callable[[JobChange], Words]:
    return lambda job: _start(job.starts_before, found.time)


def _head_start(found: Review) -> Callable[[JobChange], Words]:
    return lambda job: _start(job.starts_after, found.time)


def _start(at: Instant | None, now: Instant) -> Words:
    """A span from the snapshot, which needs no zone."""
    if at is None:
        return ("not foreseen",)
    return ("now",) if at <= now else (f"in {span(at - now)}",)
