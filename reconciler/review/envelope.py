"""What a reviewer accepts of a change: a saved plan, and whether the plan of the merged revision is still within it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from reconciler.gitsource.status import Drift
from reconciler.review.found import Review
from solver.world.cluster import GpuType
from solver.world.document import API_VERSION, Document
from solver.world.quantities import Instant, MilliGpu
from solver.world.workload import QueueName

HOUR_MS = 3_600_000


class Limit(Document, frozen=True, omit_defaults=False):
    """A queue's max of one GPU type."""

    queue: QueueName
    gpu_type: GpuType


class Envelope(Document, frozen=True, omit_defaults=False):
    """The most that a change may do: jobs that it evicts or makes smaller, with how many GPUs, GPU-hours of work that they lose
    together, and limits that it sets below what is held.
    """

    evicted_jobs: int
    evicted_gpus: MilliGpu
    lost_gpu_h: float
    converging: tuple[Limit, ...]

    @classmethod
    def of(cls, found: Review) -> Envelope:
        """Exactly what a review foresees."""
        losses = [job.loss for job in found.evicted_by_change if job.loss]
        return cls(
            len(losses),
            MilliGpu(sum(loss.gpus for loss in losses)),
            sum(loss.lost_gpu_h for loss in losses),
            tuple(Limit(broken.queue, broken.gpu_type) for broken in found.newly_broken),
        )


class SavedPlan(Document, frozen=True, omit_defaults=False):
    """A plan that a person has read, and what they accept of it.

    Who says `exact` accepts this plan alone: for the same nodes and jobs, and in place of the same revision.
    """

    accepts: Envelope
    review: Review
    exact: bool = False
    api_version: Literal["quorate.dev/v1"] = API_VERSION
    kind: Literal["SavedPlan"] = "SavedPlan"

    @property
    def meaning(self) -> str:
        """Of the revision that is accepted: a squash or a rebase changes its commit, not this."""
        return self.review.head.meaning


class AcceptedPlan(Document, frozen=True, omit_defaults=False):
    """A person accepts what a plan says of a revision, merged or not yet. `why` is the person's reason."""

    plan: SavedPlan
    author: str
    why: str
    at: Instant


def is_stale(saved: SavedPlan, fresh: Review) -> bool:
    """Whether somebody came, went or began since the plan was read, or something else is in force."""
    return (saved.review.base.meaning, saved.review.cluster) != (fresh.base.meaning, fresh.cluster)


def drift_of(saved: SavedPlan, fresh: Review) -> tuple[Drift, ...]:
    """The fresh plan of a revision beside what was accepted of it, figure by figure."""
    return tuple(_side_by_side(saved.accepts, Envelope.of(fresh), fresh.time - saved.review.time))


def _side_by_side(accepted: Envelope, now: Envelope, passed_ms: int) -> Iterator[Drift]:
    jobs = accepted.evicted_jobs, now.evicted_jobs
    yield Drift("jobs evicted", str(jobs[0]), str(jobs[1]), jobs[1] > jobs[0])
    # What the same jobs have computed since the plan was read is lost as well, and no other plan.
    most_gpu_h = accepted.lost_gpu_h + accepted.evicted_gpus.number * max(0, passed_ms) / HOUR_MS
    yield Drift("GPU-hours lost", f"{most_gpu_h:.1f}", f"{now.lost_gpu_h:.1f}", now.lost_gpu_h > most_gpu_h)
    for limit in sorted({*accepted.converging, *now.converging}, key=lambda known: (known.queue, known.gpu_type)):
        words = tuple("below what it holds" if limit in side.converging else "kept" for side in (accepted, now))
        beyond = limit not in accepted.converging
        yield Drift(f"max of {limit.gpu_type} in queue {limit.queue}", words[0], words[1], beyond)
