"""How values are spread where some are known only as lower bounds, because the replay ended first.

Each quantile is taken as if lower bounds were values, which makes it a lower bound of the true one; and it is the true one
wherever all that is unknown lies above it (right-censoring; e.g. J. P. Klein, M. L. Moeschberger, "Survival Analysis", 2003).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from statistics import fmean

from reconciler.analysis.backtest.figures import Distribution, Figure


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
