"""What a back-test found, as data: for each policy how long jobs waited, what was used and lost, and how fairly.

Some values are known only as lower bounds, because the replay ended first. Each quantile is taken as if lower bounds were values,
which makes it a lower bound of the true one; and it is the true one wherever all that is unknown lies above it (right-censoring;
e.g. J. P. Klein, M. L. Moeschberger, "Survival Analysis", 2003).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from statistics import fmean
from typing import Literal

from solver.model.document import API_VERSION, Document
from solver.model.quantities import Duration, Instant
from solver.model.workload import QueueName
from solver.plan.plan import EvictedBy, ShrunkBy

LostBy = Literal[EvictedBy, ShrunkBy, "recorded"]
"""By which of the means, or which rule, a job lost work; `recorded`: it happened, and it is not known by which."""


class Figure(Document, frozen=True):
    """A value. `at_least`: it is a lower bound, since jobs that had not come so far when the replay ended have a say in it."""

    value: float
    at_least: bool = False


class Distribution(Document, frozen=True):
    """How a value is spread over `jobs`, of which it is known exactly of `known`; the others count with their lower bounds."""

    jobs: int
    known: int
    mean: Figure
    p50: Figure
    p90: Figure
    p99: Figure
    max: Figure


class QueueFigures(Document, frozen=True):
    """How one queue fared. `waits`: seconds from submission to the first start.

    `guaranteed`: GPUs of all types. `served`: the part of what it was owed that it got (backtest/fairness); None: owed nothing.
    `slowdown`: finish-time fairness of its jobs; None: it has no guarantee, or no jobs with GPUs.
    """

    queue: QueueName
    waits: Distribution
    gpu_hours: float
    guaranteed: float
    evictions: int
    lost_gpu_hours: float
    served: float | None = None
    slowdown: Distribution | None = None


class ClassFigures(Document, frozen=True):
    """How the jobs of one priority class fared ("": of none).

    `started_within`: seconds within which 1 %, 2 %, … of them had started, up to the last that had by the end of the replay.
    """

    priority_class: str
    waits: Distribution
    started_within: tuple[float, ...]


class LossFigures(Document, frozen=True):
    """What one queue lost by one of the means: gangs evicted, gangs shrunk, and GPU-hours of work thrown away."""

    queue: QueueName
    means: LostBy
    evictions: int
    shrinks: int
    lost_gpu_hours: float


class QueueSeries(Document, frozen=True):
    """GPUs that a queue held on average in each step of time."""

    queue: QueueName
    gpus: tuple[float, ...]


class OverTime(Document, frozen=True):
    """The replay in equal steps of time from its start: GPUs in use, and gangs evicted."""

    step: Duration
    queues: tuple[QueueSeries, ...]
    evictions: tuple[int, ...]


class FairnessFigures(Document, frozen=True):
    """Jain's index of what queues got of what they were owed, and finish-time fairness of all jobs.

    None where no queue was owed anything, or no job's queue has a guarantee.
    """

    jain: float | None = None
    slowdown: Distribution | None = None


class EtaFigures(Document, frozen=True):
    """How good the earliest starts were that jobs were told in the first round in which they waited.

    `judged`: jobs with a forecast that can be judged; `undecided`: it lay beyond the end, and they had not started by then;
    `untold`: jobs that were told none. Errors are seconds, positive where a job started later than forecast; of a job that had
    not started by the end, at least the time that it was overdue. `started_by`: the part that had started when it was said to,
    give or take one cadence.
    """

    judged: int
    undecided: int
    untold: int
    error_p50: Figure | None = None
    error_abs_p90: Figure | None = None
    started_by: float | None = None


class RoundFigures(Document, frozen=True):
    """Rounds held, how many of them proven or within the policy's gap in every layer, and which part of the solve decided them."""

    held: int
    within_gap: int
    by_stage: dict[str, int]


class PolicyFigures(Document, frozen=True):
    """How the jobs fared under one policy. `utilisation`: GPU-hours held of those declared; `never`: jobs that it can never run.

    `commit`: where the policy comes from a revision. What really happened has no `digest`, no `rounds` and no `never`.
    """

    name: str
    gpus: int
    jobs: int
    started: int
    ended: int
    utilisation: float
    evictions: int
    lost_gpu_hours: float
    waits: Distribution
    queues: tuple[QueueFigures, ...]
    classes: tuple[ClassFigures, ...]
    losses: tuple[LossFigures, ...]
    over_time: OverTime
    fairness: FairnessFigures
    digest: str = ""
    never: int | None = None
    rounds: RoundFigures | None = None
    eta: EtaFigures | None = None
    commit: str = ""
    notes: tuple[str, ...] = ()


class Simulation(Document, frozen=True, omit_defaults=False):
    """The same jobs under each policy, in the order in which the policies were named. `source`: the file the jobs are from."""

    source: str
    start: Instant
    end: Instant
    cadence: Duration
    notes: tuple[str, ...]
    policies: tuple[PolicyFigures, ...]
    api_version: Literal["quorate.dev/v1"] = API_VERSION
    kind: Literal["Simulation"] = "Simulation"


def percentile(ordered: Sequence[float], percent: int) -> float:
    """The nearest rank: the smallest value that at least so many per cent do not exceed. `ordered` ascends and is not empty."""
    return ordered[max(1, -(-percent * len(ordered) // 100)) - 1]


def figure(known: Collection[float], bounds: Collection[float], percent: int) -> Figure:
    """A percentile of values and of lower bounds, which are not both empty."""
    value = percentile(sorted([*known, *bounds]), percent)
    return Figure(value, any(bound <= value for bound in bounds))


def spread(known: Collection[float], bounds: Collection[float] = ()) -> Distribution:
    """Mean and percentiles of values and of lower bounds, which are not both empty."""
    p50, p90, p99, most = (figure(known, bounds, percent) for percent in (50, 90, 99, 100))
    mean = Figure(fmean([*known, *bounds]), bool(bounds))
    return Distribution(len(known) + len(bounds), len(known), mean, p50, p90, p99, most)
