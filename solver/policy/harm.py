"""What a policy says of making running jobs leave: what protects them, what an eviction keeps to, how broken limits heal."""

from __future__ import annotations

from typing import Literal

from solver.model.document import Document
from solver.model.quantities import Duration

Means = Literal["reclaim", "preempt", "turn", "straddle"]
MEANS: tuple[Means, ...] = ("reclaim", "preempt", "turn", "straddle")
"""In the order of harm: borrowed work of others, in the queue itself work of lower priority and then that whose turn is over, a
gang across a guarantee's line."""

TimedProtection = Literal["minRuntime", "coolDown", "evictionsPerDay"]
"""What protects a running job for a while, by its name in a PriorityClass."""


class Protection(Document, frozen=True):
    """What keeps a running job from being evicted for a while, unless a guarantee has waited for too long.

    `origin` is the place in Git (`file:line`), for messages only.
    """

    min_runtime: Duration = Duration(300_000)
    cool_down: Duration = Duration(0)
    evictions_per_day: int | None = None
    origin: str = ""


class Evictions(Document, frozen=True):
    """What every eviction keeps to.

    `per_round`: most jobs evicted in one round (None: any number). `min_gain`: GPUs a taker must gain for each GPU its
    victims give up. `restart_cost`: what starting again costs beside the work since the last checkpoint. `grace`: between
    asking and making a job end. `job_cost`: what evicting a job costs beside what it loses, in GPU-time; less of it for one that
    holds less than a GPU. `back_off`: how long an evicted job borrows nothing; doubled by each
    further eviction, to an hour at most.
    `moves_per_round`: most jobs that one round moves elsewhere to make room; they count among those of `per_round`.
    `disruption_budgets_hold_for`: how long what others than the policy forbid may delay work inside a guarantee; None: as long as
    protections may.
    `origin` is the place in Git (`file:line`), for messages only.
    """

    per_round: int | None = None
    min_gain: float = 0.0
    restart_cost: Duration = Duration(300_000)
    grace: Duration = Duration(30_000)
    back_off: Duration = Duration(60_000)
    moves_per_round: int = 4
    job_cost: Duration = Duration(0)
    disruption_budgets_hold_for: Duration | None = None
    origin: str = ""


Rule = Literal["drain", "converge", "return"]
"""`drain`: a queue has its jobs leave. `converge`: a `max` was lowered below what a queue holds, and its time is over.
`return`: it runs on what is reserved for a gang of the queue, which starts soon."""

Evictable = Literal["none", "preemptible", "all"]
"""Which running jobs may have to leave where a limit was lowered below what is held: none, or those that may."""


class Convergence(Document, frozen=True):
    """How a `max` that was lowered below what runs comes to be kept again.

    For `within` from when it was found broken, jobs only end by themselves; from then `evict` says which have to leave.
    """

    within: Duration = Duration(86_400_000)
    evict: Evictable = "preemptible"
