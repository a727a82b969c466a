"""What a reviewer accepts of a change: a saved plan, and whether the plan of the merged revision is still within it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from reconciler.review.found import Review
from solver.world.cluster import GpuType
from solver.world.document import API_VERSION, Document
from solver.world.quantities import MilliGpu
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

    `meaning` is the digest of all that the proposed revision says: a squash or a rebase changes the commit, not this. Who says
    `exact` accepts this plan alone: for the same cluster, and in place of the same revision.
    """

    meaning: str
    accepts: Envelope
    review: Review
    exact: bool = False
    api_version: Literal["quorate.dev/v1"] = API_VERSION
    kind: Literal["SavedPlan"] = "SavedPlan"


class Drift(Document, frozen=True, omit_defaults=False):
    """One figure of a fresh plan that is beyond what was accepted, in words for people."""

    what: str
    accepted: str
    now: str


def drift_of(saved: SavedPlan, fresh: Review) -> tuple[Drift, ...]:
    """Where the fresh plan of a revision goes beyond what was accepted; empty: it is within."""
    return tuple(_drifts(saved.accepts, Envelope.of(fresh), fresh.time - saved.review.time))


def _drifts(accepted: Envelope, now: Envelope, passed_ms: int) -> Iterator[Drift]:
    if now.evicted_jobs > accepted.evicted_jobs:
        yield Drift("jobs evicted", str(accepted.evicted_jobs), str(now.evicted_jobs))
    # What the same jobs have computed since the plan was read is lost as well, and no other plan.
    most_gpu_h = accepted.lost_gpu_h + accepted.evicted_gpus.number * max(0, passed_ms) / HOUR_MS
    if now.lost_gpu_h > most_gpu_h:
        yield Drift("GPU-hours lost", f"{most_gpu_h:.1f}", f"{now.lost_gpu_h:.1f}")
    for limit in now.converging:
        if limit not in accepted.converging:
            yield Drift(f"max of {limit.gpu_type} in queue {limit.queue}", "kept", "below what it holds")
