"""What a policy says of its own changes. Rounds do not read it; it stands in the SchedulingPolicy, which a repository has once."""

from __future__ import annotations

from typing import Literal

from solver.model.document import Document
from solver.model.quantities import Duration

PlanRequired = Literal["never", "evictions", "always"]
"""Of no change, of those that evict jobs or set limits below what is held, or of all that mean something."""


class Guardrails(Document, frozen=True):
    """What one change may do at most; None: anything.

    `max_evicted_jobs` counts those made smaller too. `max_quota_cut_percent` is of what a queue's `guaranteed` or `max` was.
    `min_convergence`: the least time that jobs must have where a `max` is set below what their queue holds.
    `four_eyes`: patterns of paths that no user changes alone. `require_plan`: which changes need a plan that a user accepted.
    """

    max_evicted_jobs: int | None = None
    max_evicted_gpu_hours: float | None = None
    max_quota_cut_percent: int | None = None
    guaranteed_within_capacity: bool = True
    min_convergence: Duration | None = None
    four_eyes: tuple[str, ...] = ()
    require_plan: PlanRequired = "never"
