"""How jobs fare under a change, sorted by what it means for their owners."""

from __future__ import annotations

from typing import NamedTuple

from reconciler.model.review_findings import JobChange, Review

_NOTICEABLE_MS = 1_000
"""Less is how the rounds of two simulations happen to fall."""

Jobs = tuple[JobChange, ...]


class Fates(NamedTuple):
    """Each pending job is in one of the first nine, each that gives something up in one of the last five; a job may be in both."""

    starts: Jobs
    starts_no_more: Jobs
    never: Jobs
    """Inadmissible under the head alone."""
    admitted: Jobs
    """Inadmissible under the base alone, and still waiting."""
    sooner: Jobs
    later: Jobs
    starts_anyway: Jobs
    waits_anyway: Jobs
    never_anyway: Jobs
    evicted: Jobs
    shrunk: Jobs
    moved: Jobs
    spared: Jobs
    lost_anyway: Jobs


def fates(found: Review) -> Fates:
    """Sort the jobs of a review: those that lose the most first, be it work or time, others by name."""
    sorted_in: dict[str, list[JobChange]] = {kind: [] for kind in Fates._fields}
    for job in found.jobs:
        if job.before in _ANYWAY:
            sorted_in[_wait(job)].append(job)
        if job.lost_before:
            sorted_in["spared" if job.loss is None else "lost_anyway"].append(job)
    for job in found.evicted_by_change:
        sorted_in[_loss(job)].append(job)
    for kind in ("sooner", "later"):
        sorted_in[kind].sort(key=_by_difference)
    return Fates(**{kind: tuple(jobs) for kind, jobs in sorted_in.items()})


def _by_difference(job: JobChange) -> tuple[bool, int, str]:
    """Before all others those that one revision does not start within the horizon."""
    return job.delay_ms is not None, -abs(job.delay_ms or 0), job.job


_ANYWAY = {"starts": "starts_anyway", "waits": "waits_anyway", "inadmissible": "never_anyway"}
"""Outcomes of pending jobs, and where a job is that has the same under both."""


def _wait(job: JobChange) -> str:
    """By the next round; where that is the same, by the rounds ahead."""
    return _by_round(job) or (_by_start(job) if job.after == "waits" else None) or _ANYWAY[job.after]


def _by_round(job: JobChange) -> str | None:
    if job.before == job.after:
        return None
    if job.after == "inadmissible":
        return "never"
    if job.after == "starts":
        return "starts"
    return "starts_no_more" if job.before == "starts" else "admitted"


def _by_start(job: JobChange) -> str | None:
    """A job that does not start within the horizon starts later than one that does."""
    delay_ms = job.delay_ms
    if delay_ms is None:
        if job.starts_before == job.starts_after:
            return None
        return "later" if job.starts_after is None else "sooner"
    if abs(delay_ms) < _NOTICEABLE_MS:
        return None
    return "later" if delay_ms > 0 else "sooner"


def _loss(job: JobChange) -> str:
    """A job that gives up less than it holds goes on with the rest."""
    if job.loss is None or job.loss.why == "move":
        return "moved"
    return "shrunk" if job.after == "shrinks" or job.loss.gpus < job.gpus else "evicted"
