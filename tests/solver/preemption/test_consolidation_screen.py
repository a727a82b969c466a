"""Counting what moves could gain ends most searches before they begin: those alone in which nobody would be found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import HealthCheck, given

from hack.rounds.world import World
from solver.model.cluster import DeviceId, GpuType, NodeName
from solver.model.quantities import Instant, MilliGpu
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, QueueName, TaskPlacement
from solver.plan.plan import Evict
from solver.policy.policy import Policy, Queue, Quota, policy_of
from solver.preemption import consolidation as moving
from solver.preemption.consolidation import SEARCHES_MAX, TRIES_MAX, ConsolidationSearch
from solver.preemption.consolidation_screen import could_gain
from solver.round.solve import solve
from tests.drawn import worlds
from tests.solver.preemption.test_consolidation import scattered, willing
from tests.solver.preemption.test_consolidation_by_trying import POLICY, fewest, world
from tests.solver.worlds import HOUR_MS, job, node, policies

many = worlds(150, suppress_health_check=[HealthCheck.filter_too_much])


@contextmanager
def both() -> Iterator[Counter[tuple[bool, bool]]]:
    """Every search goes on to its end. Counts them by whether it would have been, and whether it found anybody to move."""
    seen, ends = Counter[tuple[bool, bool]](), list[bool]()
    find, is_in_the_way = ConsolidationSearch.find, ConsolidationSearch._is_in_the_way

    def gains(*arguments: object) -> bool:
        ends.append(not could_gain(*arguments))  # type: ignore[arg-type]
        return True

    def in_the_way(*arguments: object) -> bool:
        ends.append(not is_in_the_way(*arguments))  # type: ignore[arg-type]
        return True

    def found(self: ConsolidationSearch, *arguments: object) -> object:
        ends.clear()
        self.searches = SEARCHES_MAX
        result = find(self, *arguments)  # type: ignore[arg-type]
        if ends:
            seen[not any(ends), result is not None] += 1
        return result

    with (
        patch.object(moving, "could_gain", gains),
        patch.object(ConsolidationSearch, "_is_in_the_way", in_the_way),
        patch.object(ConsolidationSearch, "find", found),
    ):
        yield seen


def test_searches_in_vain_do_not_begin() -> None:
    """Most who wait for parts of GPUs are such, and there is not one of them in these rounds that would find anybody."""
    ended = 0
    for seed in (1, 2, 3, 4):
        seeded = World(512, 200, seed=seed)
        with both() as seen:
            solve(seeded.snapshot, seeded.policy, None)
        assert not seen[False, True]
        ended += seen[False, False]
    assert ended > 20


@pytest.mark.thorough
@many
@given(scattered(), policies().map(willing))
def test_nor_does_it_in_any_drawn_world(snapshot: Snapshot, policy: Policy) -> None:
    with both() as seen:
        solve(snapshot, policy, None)
    assert not seen[False, True]


def test_whoever_could_be_helped_is_looked_for() -> None:
    """Tried with every set of jobs and every place for each of them, on small clusters."""
    could_be = 0
    for seed in range(150):
        snapshot, held, wanted = world(seed)
        with both() as seen:
            solve(snapshot, POLICY, None)
        if fewest(held, wanted):
            assert not seen[False, False] + seen[False, True]
            could_be += seen.total()
    assert could_be > 40


def test_whoever_needs_as_many_slots_elsewhere_as_it_leaves_is_not_tried() -> None:
    """Ten gangs of whole nodes would lose less than the one job whose moving clears a node, and more than are tried."""
    gangs = [runner(f"gang-{number}", [f"g{number}", f"h{number}"], 8, hours=1) for number in range(TRIES_MAX + 2)]
    small = [runner(f"small-{number}", [f"s{number}"], 4, hours=9) for number in range(2)]
    nodes = [node(task.node, 8) for held in (*gangs, *small) for task in held.placement]
    policy = willing(
        policy_of((Queue(QueueName("a"), quota=(Quota(GpuType("H100"), MilliGpu.gpus(8 * len(nodes))),)),))
    )
    snapshot = snapshot_of(Instant(0), nodes, [*gangs, *small, job("taker", "a", 1, 8)])
    plan = solve(snapshot, policy, None)
    assert [(step.job, step.means) for step in plan.steps if isinstance(step, Evict)] == [("small-0", "move")]


def runner(name: str, on: Sequence[str], gpus: int, *, hours: int) -> Job:
    """A gang that has run for some hours, with a task on each of these nodes."""
    placement = tuple(
        TaskPlacement("worker", index, NodeName(at), tuple(DeviceId(f"{at}/{device}") for device in range(gpus)))
        for index, at in enumerate(on)
    )
    started = Instant(-hours * HOUR_MS)
    made = job(name, "a", len(on), gpus)
    return msgspec.structs.replace(made, phase="running", attempt=1, started_at=started, placement=placement)
