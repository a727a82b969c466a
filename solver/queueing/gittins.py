"""Which job is worth running next where it is not known how long jobs run: the Gittins index, from what their neighbours have run.

The index of a job is the most, over all spans ahead, of (chance that it ends within the span) / (time it is expected to run in
it): serving the highest first makes the mean time to completion least (J. Gittins, "Bandit Processes and Dynamic Allocation
Indices", 1979; for GPU jobs Gu et al., "Tiresias", NSDI 2019). Chances come from the jobs of the same queue and size that were
submitted next to it, since people submit alike jobs in a row: each counts by how near it is in the order of submission. Those
that have not ended count for as long as they ran.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from solver.model.arrays import Floats

NEARNESS_FOLD = 5.0
"""Places in the order of submission over which a neighbour's weight falls to 1/e."""

NEIGHBOURS = 40
"""Places to either side that are looked at: farther ones would weigh less than 1/2,900 of the nearest."""

PRIOR_JOBS = 0.03
"""Of how many jobs at no distance it is taken for known, in each bucket, that they end at a rate of one in the time run so far.

Much smaller than a neighbour: it decides only where no neighbour has run that long.
"""

MINUTE_MS = 60_000.0
BUCKETS = 22
"""Of run time: up to a minute, two, four, and so on, to two years. Inside one the rate of ending is taken as constant."""

_LOWER = np.concatenate(([0.0], MINUTE_MS * 2.0 ** np.arange(BUCKETS - 1)))
_UPPER = np.append(_LOWER[1:], 1e15)


class Lived(NamedTuple):
    """How long a job has run in all its attempts, and whether that was all. `setup_ms`: what running on would cost first."""

    ran_ms: float
    ended: bool
    setup_ms: float = 0.0


def indices(jobs: Sequence[Lived]) -> list[float]:
    """The index of each job that has not ended, in endings per ms; `jobs` are alike and in the order of submission."""
    ran = np.array([job.ran_ms for job in jobs], dtype=np.float64)
    ended = np.array([job.ended for job in jobs])
    rows = np.flatnonzero(~ended)
    setup = np.array([job.setup_ms for job in jobs], dtype=np.float64)[rows]
    rates: list[float] = _best_rate(ran[rows], setup, _hazards(ran, ended, rows)).tolist()
    return rates


def _hazards(ran: Floats, ended: npt.NDArray[np.bool_], rows: npt.NDArray[np.intp]) -> Floats:
    """How many end per ms, for each row and bucket, of jobs that ran for as long as the row's job has already."""
    lower = np.maximum(_LOWER, ran[rows, None])
    span = np.maximum(0.0, _UPPER - lower)
    endings = np.full(lower.shape, PRIOR_JOBS)
    exposed = np.broadcast_to(PRIOR_JOBS * np.maximum(_LOWER, MINUTE_MS), lower.shape).copy()
    for distance in range(1, min(NEIGHBOURS, len(ran) - 1) + 1):
        weight = np.exp(-distance / NEARNESS_FOLD)
        for neighbours in (rows - distance, rows + distance):
            known = (neighbours >= 0) & (neighbours < len(ran))
            near = np.where(known, neighbours, 0)
            beyond = np.where(known, ran[near], 0.0)[:, None] - lower
            exposed += weight * np.clip(beyond, 0.0, span)
            endings += weight * (ended[near][:, None] & (beyond > 0.0) & (beyond <= span))
    return endings / exposed


def _best_rate(ran: Floats, setup: Floats, hazards: Floats) -> Floats:
    """The best of (chance of ending) / (expected time) over the spans that end with a bucket."""
    survive, expected, best = np.ones(len(ran)), setup.copy(), np.zeros(len(ran))
    for bucket in range(BUCKETS):
        hazard, length = hazards[:, bucket], np.maximum(0.0, _UPPER[bucket] - np.maximum(_LOWER[bucket], ran))
        ends = -np.expm1(-hazard * length)
        expected += survive * ends / hazard
        survive *= 1.0 - ends
        best = np.maximum(best, (1.0 - survive) / np.maximum(expected, 1.0))
    return best
