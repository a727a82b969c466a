"""What a review finds as problems with places, each at the change that brings it about."""

from __future__ import annotations

import re
from collections.abc import Iterator

from reconciler.analysis.reports.fates import fates
from reconciler.analysis.reports.job_sections import hours
from reconciler.analysis.reports.paths import Paths
from reconciler.model.problem import Problem, problem_of
from reconciler.model.review_findings import Breach, Converging, JobChange, QueueChange, Review, Stranded, Unrestartable
from solver.model.quantities import MilliGpu
from solver.plan.reason import count

_HUMP = re.compile(r"(?=[A-Z])")


def review_problems(found: Review, paths: Paths) -> tuple[Problem, ...]:
    """Broken guardrails are errors; work given up, and queues and nodes removed while in use, are warnings; the rest are notices.

    Those are limits set below what is held, and jobs that can no longer start at all.
    """
    sorted_jobs = fates(found)
    evicted = (*sorted_jobs.evicted, *sorted_jobs.shrunk, *sorted_jobs.moved)
    return (
        *map(_breach, found.breaches),
        *(problem for job in evicted for problem in _given_up(found, job, paths)),
        *(_converging(found, limit, paths) for limit in found.newly_broken),
        *(_orphaned(found, change, paths) for change in found.orphaned),
        *(_stranded(found, one, paths) for one in found.stranded),
        *(_unrestartable(found, one, paths) for one in found.newly_unrestartable),
        *(_inadmissible(found, job, paths) for job in sorted_jobs.never),
        *found.ending,
    )


def _breach(breach: Breach) -> Problem:
    code = f"guardrail-{_HUMP.sub('-', breach.guardrail).lower()}"
    return problem_of(breach.origin, code, breach.message, breach.fix, "error")


def _given_up(found: Review, job: JobChange, paths: Paths) -> Iterator[Problem]:
    loss = job.loss
    if loss is None:
        return
    whom = f" for {loss.by}" if loss.by else ""
    message = (
        f"job {job.job} of queue {paths.path(job.queue)} would give up {loss.gpus} of {job.gpus} GPUs{whom}, "
        f"asked at {loss.at} with a grace of {loss.grace}; {hours(loss.lost_gpu_h)} GPU-hours of work lost"
    )
    queues = (loss.by_queue, job.queue) if loss.by_queue else (job.queue,)
    yield problem_of(_blamed(found, paths, *queues), "gives-up-work", message, severity="warning")


def _converging(found: Review, limit: Converging, paths: Paths) -> Problem:
    held = MilliGpu(limit.max + limit.over)
    until = f"; jobs are evicted from {limit.deadline} on" if limit.deadline and limit.evicts != "none" else ""
    message = f"queue {paths.path(limit.queue)} holds {held} of max {limit.max} {limit.gpu_type}{until}"
    return problem_of(_blamed(found, paths, limit.queue), "converges", message, severity="notice")


def _orphaned(found: Review, change: QueueChange, paths: Paths) -> Problem:
    held = change.before.used if change.before else MilliGpu(0)
    message = f"queue {paths.path(change.queue)} is removed while its jobs hold {held} {change.gpu_type}"
    fix = "Let them end first: stopPolicy HoldAndDrain, or Hold and wait."
    return problem_of(_blamed(found, paths, change.queue), "removed-in-use", message, fix, "warning")


def _stranded(found: Review, one: Stranded, paths: Paths) -> Problem:
    message = (
        f"job {one.job} of queue {paths.path(one.queue)} runs on {count(len(one.nodes), 'node')} that would be removed"
    )
    pools = (change.origin for change in found.documents if change.document.startswith("NodePool "))
    fix = "Cordon them first, and wait: `cordoned` of the NodePool."
    return problem_of(next(filter(None, pools), ""), "node-removed-in-use", message, fix, "warning")


def _unrestartable(found: Review, one: Unrestartable, paths: Paths) -> Problem:
    message = (
        f"job {one.job} of queue {paths.path(one.queue)} runs, and could never start again: {'; '.join(one.reasons)}"
    )
    return problem_of(_blamed(found, paths, one.queue), "never-restarted", message, " ".join(one.would_help), "warning")


def _inadmissible(found: Review, job: JobChange, paths: Paths) -> Problem:
    why = f": {'; '.join(job.reasons)}" if job.reasons else ""
    message = f"job {job.job} of queue {paths.path(job.queue)} could never start{why}"
    return problem_of(_blamed(found, paths, job.queue), "never-admitted", message, severity="notice")


def _blamed(found: Review, paths: Paths, *queues: str) -> str:
    """Where the change stands that this is for: at the first of these queues or above it, else at any document."""
    changed = found.documents
    ordered = [one for queue in queues for one in changed if paths.is_above(one.document, queue)]
    places = (place for one in (*ordered, *changed) for place in (*(field.origin for field in one.fields), one.origin))
    return next(filter(None, places), "")
