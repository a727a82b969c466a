"""From when on a job may have a GPU type further down its wish list, and what it may have of one before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from solver.model.cluster import GpuType
from solver.model.quantities import Duration, Instant
from solver.model.workload import Job
from solver.policy.policy import Policy
from solver.quota.options import Option


def fallback_after(job: Job, policy: Policy) -> Duration:
    """How long a job waits for the first type that could serve it: its own word, else its class's, else the policy's."""
    known = policy.priority_class(job)
    said = (job.spec.fallback_after, known.fallback_after if known else None)
    return next((after for after in said if after is not None), policy.scheduling.fallback_after)


def fallback_opens(job: Job, policy: Policy) -> Instant:
    """When all types that the job accepts are open to it, counted from its submission."""
    return job.submitted_at.after(fallback_after(job, policy))


def as_open_at(options: Sequence[Option], job: Job, policy: Policy, now: Instant) -> tuple[Option, ...]:
    """A job's options (those that can serve it one day) with what holds for each at an instant.

    Too early, a fallback type is only for a gang that is entitled to it, to the last GPU: then it is as much its right as
    its first choice. An entitlement to nothing on either type does not count as an equal one.
    """
    first = min(option.fallback for option in options)
    later = [option.fallback > first for option in options]
    if any(later) and now >= fallback_opens(job, policy):
        later = [False] * len(options)
    return tuple(
        option if option.inside_only == inside_only else replace(option, inside_only=inside_only)
        for option, inside_only in zip(options, later, strict=True)
    )


def types_of(option: Option) -> Iterator[GpuType]:
    """The GPU types that an option uses, each once."""
    return (gpu_type for gpu_type in dict.fromkeys(option.gpu_types) if gpu_type is not None)
