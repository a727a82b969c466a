"""Stragglers: who is slower than its peers is found, and a gang that is slow as a whole accuses nobody."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.lifecycle.health.stragglers import accusations
from reconciler.model.health_policy import StragglerRule
from reconciler.protocols.backend import Progress, TaskState, TaskStatus
from solver.model.cluster import NodeName
from solver.model.quantities import Duration, Instant
from solver.model.workload import JobName

NOW = Instant(1_700_000_000_000)
RULE = StragglerRule()
RATES = st.floats(0.001, 1e6)


def task(index: int, rate: float, job: str = "a", state: TaskState = "running", ago_ms: int = 0) -> TaskStatus:
    said = Progress(10, rate, Instant(NOW - ago_ms))
    node = NodeName(f"n{index}")
    return TaskStatus(JobName(job), 1, "worker", index, node, state, NOW, progress=said)


def gang(rates: Iterable[float]) -> list[TaskStatus]:
    return [task(index, rate) for index, rate in enumerate(rates)]


def accused(tasks: Iterable[TaskStatus], rule: StragglerRule = RULE) -> list[str]:
    return [each.node for each in accusations(tasks, rule, NOW)]


@given(st.integers(0, 7), RATES, st.floats(0.01, 0.79))
def test_one_slow_task_among_eight_is_found(slow: int, rate: float, part: float) -> None:
    rates = [rate] * 8
    rates[slow] *= part
    assert accused(gang(rates)) == [f"n{slow}"]


@given(RATES, st.lists(st.floats(0.9, 1.1), min_size=4, max_size=16))
def test_a_gang_that_is_slow_as_a_whole_accuses_nobody(rate: float, spread: list[float]) -> None:
    assert accused(gang(rate * each for each in spread)) == []


@given(st.lists(RATES, min_size=4, max_size=12))
def test_who_is_accused_does_not_depend_on_the_unit_or_the_order(rates: list[float]) -> None:
    found = accused(gang(rates))
    assert accused(gang(rate * 4 for rate in rates)) == found
    assert sorted(accused(reversed(gang(rates)))) == sorted(found)


@given(st.lists(RATES, min_size=4, max_size=12))
def test_never_as_many_as_half_of_a_gang_are_accused(rates: list[float]) -> None:
    assert 2 * len(accused(gang(rates))) <= len(rates)


@pytest.mark.parametrize(
    ("slow", "found"),
    [
        (task(0, 7.9), ["n0"]),
        (task(0, 8.0), []),
        (task(0, 0.0), []),
        (task(0, 1.0, state="succeeded"), []),
        (task(0, 1.0, ago_ms=600_000), ["n0"]),
        (task(0, 1.0, ago_ms=600_001), []),
        (task(0, 1.0, job="b"), []),
    ],
)
def test_only_what_runs_and_says_so_now_is_compared_with_its_own_gang(slow: TaskStatus, found: list[str]) -> None:
    assert accused([slow, *(task(index, 10.0) for index in range(1, 5))]) == found


def test_too_few_peers_accuse_nobody() -> None:
    assert accused(gang([1.0, 10.0, 10.0])) == []
    assert accused(gang([1.0, 10.0, 10.0]), StragglerRule(min_tasks=3, held=Duration(1))) == ["n0"]
