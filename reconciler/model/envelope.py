"""What a reviewer accepts of a change: a saved plan, and whether the plan of the merged revision is still within it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from reconciler.model.git_status import Drift
from reconciler.model.review_findings import LOST_DECIMALS, Review
from solver.model.cluster import GpuType
from solver.model.document import API_VERSION, Document
from solver.model.quantities import Instant, MilliGpu
from solver.model.workload import QueueName

HOUR_MS = 3_600_000
UNITS_PER_GPU_H = 10.0**LOST_DECIMALS


class QueueLimit(Document, frozen=True, omit_defaults=False):
    """A queue's max of one GPU type."""

    queue: QueueName
    gpu_type: GpuType


class Harm(Document, frozen=True, omit_defaults=False):
    """What a change takes away: jobs that it evicts or makes smaller, with how many GPUs, GPU-hours of work that they lose
    together, and limits that it sets below what is held.
    """

    evicted_jobs: int
    evicted_gpus: MilliGpu
    lost_gpu_h: float
    converging: tuple[QueueLimit, ...]

    @classmethod
    def of(cls, found: Review) -> Harm:
        """What a review foresees."""
        losses = [job.loss for job in found.evicted_by_change if job.loss]
        return cls(
            len(losses),
            MilliGpu(sum(loss.gpus for loss in losses)),
            sum(loss.lost_gpu_h for loss in losses),
            tuple(QueueLimit(broken.queue, broken.gpu_type) for broken in found.newly_broken),
        )

    def __bool__(self) -> bool:
        return bool(self.evicted_jobs or self.converging)


class Envelope(Document, frozen=True, omit_defaults=False):
    """Which change a person accepts, how it was planned, and the most that it may do.

    `meaning` is the digest of all that the proposed revision says: a squash or a rebase changes the commit, not this.
    `in_place_of` is that of the base; `cluster` and `snapshot` are the review's. `exact` accepts this plan alone: for
    the same nodes and jobs, and in place of the same base.
    """

    meaning: str
    in_place_of: str
    snapshot: str
    cluster: str
    time: Instant
    solver: str
    seed: int
    gap: float
    accepts: Harm
    exact: bool = False

    @classmethod
    def of(cls, found: Review, gap: float, exact: bool = False) -> Envelope:
        """Around exactly what a review foresees. `gap`: what the head's policy lets a round leave unproven."""
        head, base = found.head, found.base
        plan = head.certificate
        pinned = head.meaning, base.meaning, found.snapshot, found.cluster, found.time
        return cls(*pinned, plan.solver, plan.seed, gap, Harm.of(found), exact)


class SavedPlan(Document, frozen=True, omit_defaults=False):
    """What `quorate plan --out` writes: the plan that a person reads, and the envelope that `quorate apply` sends."""

    envelope: Envelope
    review: Review
    api_version: Literal["quorate.dev/v1"] = API_VERSION
    kind: Literal["SavedPlan"] = "SavedPlan"


class AcceptedPlan(Document, frozen=True, omit_defaults=False):
    """A person accepts an envelope, before the revision is merged or after. `why` is the person's reason."""

    envelope: Envelope
    author: str
    why: str
    at: Instant


def is_stale(envelope: Envelope, in_place_of: str, cluster: str) -> bool:
    """Whether it is exact, and a job came, went or began since the plan was read, or something else is in force."""
    return envelope.exact and (envelope.in_place_of, envelope.cluster) != (in_place_of, cluster)


def drift_of(envelope: Envelope, fresh: Review) -> tuple[Drift, ...]:
    """The fresh plan of a revision beside what was accepted of it, figure by figure."""
    return tuple(_side_by_side(envelope.accepts, Harm.of(fresh), fresh.time - envelope.time))


def _side_by_side(accepted: Harm, now: Harm, passed_ms: int) -> Iterator[Drift]:
    jobs = accepted.evicted_jobs, now.evicted_jobs
    yield Drift("jobs evicted", str(jobs[0]), str(jobs[1]), jobs[1] > jobs[0])
    # What the same jobs have computed since the plan was read is lost as well, and no other plan.
    most_gpu_h = accepted.lost_gpu_h + accepted.evicted_gpus.number * max(0, passed_ms) / HOUR_MS
    # Losses are rounded job by job, so that two plans of the same ones may differ by a unit for each.
    more_lost = _units(now.lost_gpu_h) > _units(most_gpu_h) + accepted.evicted_jobs
    yield Drift("GPU-hours lost", f"{most_gpu_h:.1f}", f"{now.lost_gpu_h:.1f}", more_lost)
    for limit in sorted({*accepted.converging, *now.converging}, key=lambda known: (known.queue, known.gpu_type)):
        words = tuple("below what it holds" if limit in side.converging else "kept" for side in (accepted, now))
        beyond = limit not in accepted.converging
        yield Drift(f"max of {limit.gpu_type} in queue {limit.queue}", words[0], words[1], beyond)


def _units(gpu_h: float) -> int:
    """In the smallest unit that reviews have digits for."""
    return round(gpu_h * UNITS_PER_GPU_H)
