"""The figures of a replay that can be worked out by hand (tests/reconciler/analysis/backtest/backtests.py)."""

from __future__ import annotations

import msgspec
import pytest

from reconciler.analysis.backtest.backtest import Backtest, PolicyCandidate
from reconciler.analysis.backtest.figures import Figure, PolicyFigures
from solver.model.amounts import amounts_of
from solver.model.quantities import Duration, Instant
from solver.simulation.trace import TraceJob
from tests.reconciler.analysis.backtest.backtests import (
    END,
    HOUR,
    JOBS,
    LENT,
    MINUTE,
    SHARED,
    figures,
    silently,
    traced,
)
from tests.solver.worlds import node

RESTART_H = LENT.scheduling.evictions.restart_cost / HOUR


def test_waits_starts_and_who_never_can() -> None:
    found = figures(LENT)
    assert (found.jobs, found.started, found.ended, found.never) == (3, 2, 2, 1)
    assert (found.waits.jobs, found.waits.known) == (3, 2)
    assert found.waits.p50 == Figure(60.0)
    # `huge` waited from hour 2 to the end.
    assert found.waits.max == Figure(18 * 3600, at_least=True)
    assert {one.queue: one.waits.p50 for one in found.queues} == {"lender": Figure(60.0), "borrower": Figure(0.0)}
    (only,) = found.classes
    # Of three jobs one had started at once, two within a minute, and the third never did.
    assert only.started_within == (0.0,) * 33 + (60.0,) * 33


def test_what_was_held_and_lost() -> None:
    found = figures(LENT)
    held = {one.queue: one.gpu_hours for one in found.queues}
    again = 4 + RESTART_H
    assert held == pytest.approx({"lender": 16, "borrower": 8 * (1 + again)})
    assert found.utilisation == pytest.approx((2 + 1 + again) / 20)
    (loss,) = found.losses
    assert (loss.queue, loss.means, loss.evictions, loss.shrinks) == ("borrower", "reclaim", 1, 0)
    assert loss.lost_gpu_hours == found.lost_gpu_hours == pytest.approx(8 * (1 + RESTART_H))
    assert (found.over_time.step, sum(found.over_time.evictions)) == (15 * MINUTE, 1)
    assert found.over_time.evictions[4] == 1
    series = {str(one.queue): one.gpus for one in found.over_time.queues}
    assert series["borrower"][:4] == (8.0,) * 4
    quarters = sum(sum(gpus) for gpus in series.values()) / 4
    assert quarters == pytest.approx(sum(held.values()), abs=0.01)


def test_fairness() -> None:
    lent = {str(one.queue): one for one in figures(LENT).queues}
    # The borrower has no guarantee: no private cluster, and nothing that it is owed.
    assert (lent["borrower"].slowdown, lent["borrower"].served) == (None, None)
    assert lent["lender"].slowdown is not None
    # Alone the owner ends after 2 hours; it ended a cadence later. `huge` does not count: it can't run anywhere.
    assert lent["lender"].slowdown.known == 1
    assert lent["lender"].slowdown.max.value == pytest.approx((2 * HOUR + MINUTE) / (2 * HOUR))
    # From its submission to its end it was owed 8 GPUs, and it had them for two hours.
    assert lent["lender"].served == pytest.approx(2 * HOUR / (2 * HOUR + MINUTE))
    assert figures(LENT).fairness.jain == 1.0
    # The borrower's half is 4 GPUs, of which it is owed all until it ends; the lender's half waits from hour 1 on.
    shared = figures(SHARED, JOBS[:2])
    assert {one.queue: one.served for one in shared.queues} == pytest.approx({"borrower": 1.0, "lender": 2 / 5})
    assert shared.fairness.jain == pytest.approx((1.4**2) / (2 * (1 + 0.4**2)))
    assert shared.evictions == 0


def test_forecasts_against_what_happened() -> None:
    """`owner` is told hour 4, when `lent` ends at its limit, and starts then; in the second world `lent` ends after an hour."""
    exact = figures(SHARED, JOBS[:2]).eta
    assert exact is not None
    assert (exact.judged, exact.untold, exact.started_by) == (1, 0, 1.0)
    assert exact.error_p50 == exact.error_abs_p90 == Figure(0.0)
    early = traced("lent", "borrower", 0, 4)
    early = type(early)(early.job, type(early.duration)(2 * HOUR))
    found = figures(SHARED, (early, JOBS[1])).eta
    assert found is not None
    assert (found.error_p50, found.error_abs_p90) == (Figure(-2 * 3600.0), Figure(2 * 3600.0))


def asking(one: TraceJob, **amounts: int) -> TraceJob:
    (group,) = one.job.spec.task_groups
    shape = msgspec.structs.replace(group.shape, resources=amounts_of(amounts))
    spec = msgspec.structs.replace(one.job.spec, task_groups=(msgspec.structs.replace(group, shape=shape),))
    return TraceJob(msgspec.structs.replace(one.job, spec=spec), one.duration)


def test_resources_are_counted_where_nodes_declare_them_and_else_noted() -> None:
    """Pods are on record with all that they asked for; a NodePool in Git may say nothing of it."""
    jobs = tuple(asking(traced(name, "lender", 0, 1, gpus=1), pods=1, nic=1) for name in ("a", "b"))
    backtest = Backtest(jobs, Instant(0), END, Duration(MINUTE), None)

    def tried(**has: int) -> PolicyFigures:
        declared = msgspec.structs.replace(node("n", 8), resources=amounts_of(has))
        return backtest.under(PolicyCandidate("policy", SHARED, (declared,)), silently)

    both, one_by_one = tried(), tried(nic=1, pods=110)
    assert both.notes == ("no node declares these, so they are not counted: nic, pods",)
    assert one_by_one.notes == ()
    # The second card is free an hour after the first job began, as the next round sees.
    assert [found.waits.max for found in (both, one_by_one)] == [Figure(0.0), Figure(3600.0)]
