"""What was held is read once: placements for a pass, sums for a minute, which say how far they were added up."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from reconciler.api.timeline import TimeWindow
from reconciler.web.memo import KEPT_MAX, Memo, PassMemo
from reconciler.web.past import PastReader, steps_of
from reconciler.web.time_window import ShownWindow
from solver.model.cluster import NodeName
from solver.model.quantities import Instant
from solver.model.snapshot import Snapshot
from solver.model.workload import JobName, QueueName
from tests.reconciler.api.conftest import H100, NOW, Site, spec
from tests.reconciler.web.test_cluster_summary import task

MINUTE = 60_000
TEAM = QueueName("team")
START = Instant(NOW // MINUTE * MINUTE)
"""Half a minute before `runs` began to hold two GPUs."""


class Counted:
    """Placements, and how often each reading was asked for."""

    def __init__(self, placements: Any) -> None:
        self._placements, self.asked = placements, Counter[str]()

    def __getattr__(self, name: str) -> Any:
        self.asked[name] += 1
        return getattr(self._placements, name)


@pytest.fixture
def world(site: Site) -> tuple[PastReader, Counter[str], list[Snapshot]]:
    site.store.jobs.submit(JobName("runs"), spec(), "ada", NOW, "key")
    site.bind("runs", task("n1", 0, 1))
    counted, seen = Counted(site.store.placements), [site.snapshot()]
    services: Any = replace(site.services(), placements=counted, snapshot=lambda: seen[0])
    return PastReader(services, PassMemo(services)), counted.asked, seen


def at(now: Instant) -> ShownWindow:
    return ShownWindow(START, START.after(10 * MINUTE), now, "", "")


def test_sums_are_read_once_a_minute_and_are_of_when_they_were_read(
    world: tuple[PastReader, Counter[str], list[Snapshot]],
) -> None:
    past, asked, _ = world
    begun = START.after(5 * MINUTE)
    first = past.use_of_queues({TEAM: TEAM}, at(begun.after(10_000)))
    later = past.use_of_queues({TEAM: TEAM}, at(begun.after(50_000)))
    assert later == first
    assert (asked["use_of_queues"], first.until - begun, first.steps_over) == (1, 10_000, 5.167)
    # The last step is averaged over the ten seconds that have passed of it.
    assert first.of[TEAM, H100][1:] == (2_000,) * 5
    assert past.use_of_queues({TEAM: TEAM}, at(begun.after(MINUTE))).until == begun.after(MINUTE)
    assert asked["use_of_queues"] == 2


def test_placements_are_read_once_for_a_pass(
    world: tuple[PastReader, Counter[str], list[Snapshot]], site: Site
) -> None:
    past, asked, seen = world
    for _ in range(3):
        (placed,) = past.on_nodes((NodeName("n1"),), at(START.after(MINUTE))) or ()
        assert placed.placement.job == "runs"
        assert len(past.in_queues((TEAM,), at(START.after(MINUTE))) or ()) == 1
    assert (asked["on_nodes"], asked["in_queues"]) == (1, 1)
    seen[0] = site.snapshot()
    past.on_nodes((NodeName("n1"),), at(START.after(MINUTE)))
    past.on_nodes((NodeName("n2"),), at(START.after(MINUTE)))
    assert asked["on_nodes"] == 3


def test_nothing_is_read_of_what_is_to_come(world: tuple[PastReader, Counter[str], list[Snapshot]]) -> None:
    past, asked, _ = world
    ahead = at(START.after(-MINUTE))
    assert (past.on_nodes((NodeName("n1"),), ahead), past.in_queues((TEAM,), ahead)) == ((), ())
    assert (past.use_of_queues({TEAM: TEAM}, ahead).of, past.use_of_nodes((NodeName("n1"),), ahead).of) == ({}, {})
    assert not asked


@pytest.mark.parametrize("minutes", [1, 96, 97, 10_080, 5 * 366 * 1_440])
def test_steps_are_few_and_reach_to_the_end(minutes: int) -> None:
    end = START.after(minutes * MINUTE)
    steps = steps_of(TimeWindow(START, end, end))
    assert 1 <= steps.number <= 96
    assert steps.end - steps.step < end <= steps.end


def test_what_is_remembered_has_bounds() -> None:
    memo, worked = Memo(), list[int]()
    for number in (*range(KEPT_MAX + 1), 1, 0):
        memo.of(number, lambda number=number: worked.append(number))  # type: ignore[misc]
    assert worked == [*range(KEPT_MAX + 1), 0]
