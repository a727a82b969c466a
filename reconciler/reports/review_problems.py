"""What a review finds as problems with places, each at the change that brings it about."""

from __future__ import annotations

import re
from collections.abc import Iterator

from reconciler.documents.problem import Problem, problem_at
from reconciler.reports.fates import fates
from reconciler.reports.job_sections import hours
from reconciler.reports.places import Places, placed
from reconciler.review.found import Breach, Converging, JobChange, Review
from solver.world.quantities import MilliGpu

_HUMP = re.compile(r"(?=[A-Z])")


def review_problems(found: Review, places: Places) -> tuple[Problem, ...]:
    """Broken guardrails are errors, running work given up is a warning, limits that converge and inadmissible jobs are notices."""
    sorted_jobs = fates(found)
    evicted = (*sorted_jobs.evicted, *sorted_jobs.shrunk, *sorted_jobs.moved)
    return (
        *(_breach(breach) for breach in found.breaches),
        *(problem for job in evicted for problem in _given_up(found, job, places)),
        *(_converging(limit, places) for limit in found.converging),
        *(_inadmissible(found, job, places) for job in sorted_jobs.never),
    )


def _breach(breach: Breach) -> Problem:
    file, place = placed(breach.origin)
    code = f"guardrail-{_HUMP.sub('-', breach.guardrail).lower()}"
    return problem_at(file, place, code, breach.message, breach.fix)


def _given_up(found: Review, job: JobChange, places: Places) -> Iterator[Problem]:
    if job.loss is None:
        return
    loss = job.loss
    file, place = placed(_blamed(found, job.queue if loss.by_queue is None else loss.by_queue, job.queue, places))
    whom = f" for {loss.by}" if loss.by else ""
    message = (
        f"job {job.job} of queue {places.path(job.queue)} would give up {loss.gpus} of {job.gpus} GPUs{whom}, "
        f"asked at {loss.at} with a grace of {loss.grace}; {hours(loss.lost_gpu_h)} GPU-hours of work lost"
    )
    yield problem_at(file, place, "gives-up-work", message, severity="warning")


def _converging(limit: Converging, places: Places) -> Problem:
    quota = places.origin(f"Queue {limit.queue} {limit.gpu_type}") or places.origin(f"Queue {limit.queue}")
    file, place = placed(quota)
    held = MilliGpu(limit.max + limit.over)
    until = f"; jobs are evicted from {limit.deadline} on" if limit.deadline and limit.evicts != "none" else ""
    message = f"queue {places.path(limit.queue)} holds {held} of max {limit.max} {limit.gpu_type}{until}"
    return problem_at(file, place, "converges", message, severity="notice")


def _inadmissible(found: Review, job: JobChange, places: Places) -> Problem:
    file, place = placed(_blamed(found, job.queue, job.queue, places))
    why = f": {'; '.join(job.reasons)}" if job.reasons else ""
    message = f"job {job.job} of queue {places.path(job.queue)} could never start{why}"
    return problem_at(file, place, "never-admitted", message, severity="notice")


def _blamed(found: Review, by: str, of: str, places: Places) -> str:
    """Where the change stands that this is for: of the queue that gets something, that loses it, else of any document."""
    changed = [document.document for document in found.documents]
    ordered = [
        *(document for document in changed if places.is_under(by, document)),
        *(document for document in changed if places.is_under(of, document)),
        *changed,
    ]
    return next((origin for document in ordered if (origin := places.origin(document))), "")
