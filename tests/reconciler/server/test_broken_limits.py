"""Which limits `quorate status` says are to be kept again, until when, and who is evicted then."""

from __future__ import annotations

import pytest

from reconciler.control.broken_limits import broken_limits
from reconciler.model.broken_limit import BrokenLimit
from solver.model.quantities import Instant, MilliGpu
from solver.model.snapshot import Snapshot
from solver.model.workload import JobName
from solver.policy.policy import Queue, policy_of
from solver.policy.tree import QueueTree, QuotaLine
from solver.quota.entitlement import use_by_line
from tests.solver.preemption.test_departures import HOUR, H, Q, clock, policy, world


def test_a_limit_that_is_kept_is_not_told() -> None:
    assert list(broken_limits(world(0, held=8), policy(8))) == []


def test_a_broken_one_is_told_with_its_deadline_and_who_leaves_then() -> None:
    broken = list(broken_limits(world(5, 9, (clock("a", 8, 24),)), policy(8)))
    assert broken == [
        BrokenLimit(Q, H, MilliGpu.gpus(9), MilliGpu.gpus(8), "preemptible", Instant(24 * HOUR), (JobName("j"),))
    ]


def test_a_limit_lowered_again_is_told_with_each_of_its_deadlines() -> None:
    clocks = clock("b", 8, 29), clock("a", 16, 24)
    broken = list(broken_limits(world(5, 32, clocks), policy(8)))
    assert [(each.max.number, each.deadline) for each in broken] == [(16, 24 * HOUR), (8, 29 * HOUR)]


def test_where_nobody_is_evicted_there_is_no_deadline() -> None:
    (broken,) = broken_limits(world(5, 9), policy(8, "none"))
    assert (broken.evict, broken.deadline, broken.jobs) == ("none", None, ())


def test_after_the_deadline_it_is_told_who_is_next() -> None:
    (broken,) = broken_limits(world(30, 9, (clock("a", 8, 24),)), policy(8))
    assert broken.jobs == ("j",)


def test_where_no_queue_has_a_max_no_job_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 30,000 jobs whoever asked first after a pass waited for that."""
    counted: list[Snapshot] = []

    def noted(seen: Snapshot, tree: QueueTree) -> dict[QuotaLine, int]:
        counted.append(seen)
        return use_by_line(seen, tree)

    monkeypatch.setattr("reconciler.control.broken_limits.use_by_line", noted)
    assert list(broken_limits(world(5, 9), policy_of((Queue(Q),)))) == []
    assert not counted
    assert list(broken_limits(world(5, 9), policy(8)))
    assert counted
