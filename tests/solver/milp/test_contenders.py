"""Where many wait the program chooses among those who can come to count; what it then says of the best is of all."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import cache

import pytest

from hack.rounds.world import World
from solver.capacity.free_capacity import FreeCapacity
from solver.checker.check import violations
from solver.milp import contenders as contest
from solver.milp import start_decision as decide
from solver.milp.contenders import contenders
from solver.milp.highs import optimise
from solver.model.cluster import GpuType
from solver.model.quantities import MILLI_PER_GPU
from solver.model.workload import JobName
from solver.plan.plan import Plan
from solver.queueing.demand import StartCandidate
from solver.quota.entitlement import QuotaHeadroom, Shares
from solver.round.solve import solve

Asked = tuple[Sequence[StartCandidate], Collection[JobName], Shares, FreeCapacity]

CROWDED = World(512, pending=400, full=0.9, seed=2)
EMPTY = World(512, pending=300, full=0.0, seed=1)
SMALL = World(64, pending=40, full=0.0, seed=1)
"""Those whom greedy starts are few enough for a program that is branched over."""


class HeardError(Exception):
    """More of a round need not be known."""


@cache
def asked_of(world: World) -> Asked:
    """What the first question of a round is about."""
    heard: list[Asked] = []

    def noted(*given: object) -> tuple[StartCandidate, ...]:
        heard.append(given)  # type: ignore[arg-type]
        raise HeardError

    with pytest.MonkeyPatch.context() as patched, suppress(HeardError):
        patched.setattr(decide, "contenders", noted)
        solve(world.snapshot, world.policy, lambda *_: None)
    return heard[0]


def test_of_few_all_contend() -> None:
    candidates, started, shares, room = asked_of(CROWDED)
    assert contenders(candidates, started, shares, room) == tuple(candidates)


@pytest.mark.parametrize("world", [CROWDED, EMPTY], ids=["crowded", "empty"])
def test_who_is_left_out_has_no_guarantee_or_comes_after_those_who_ask_for_all_of_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contest, "ALL_MAX", 0)
    candidates, started, shares, room = asked_of(world)
    chosen = contenders(candidates, started, shares, room)
    names = {candidate.job.name for candidate in chosen}
    assert chosen == tuple(candidate for candidate in candidates if candidate.job.name in names)
    assert names >= set(started)
    assert len(chosen) < len(candidates)
    entitled, earlier = QuotaHeadroom(shares).entitled, list[StartCandidate]()
    for candidate in candidates:
        if candidate.job.name not in names:
            for option in candidate.options:
                for gpu_type, milli in option.charge.items():
                    queue = candidate.job.spec.queue
                    left = entitled.part(queue, {gpu_type: 10**9})
                    of_queue = sum(_wanted(c, gpu_type, left) for c in earlier if c.job.spec.queue == queue)
                    of_type = sum(
                        _wanted(c, gpu_type, entitled.part(c.job.spec.queue, {gpu_type: 10**9}))
                        for c in earlier
                        if c.job.name in names
                    )
                    free = MILLI_PER_GPU * int(
                        room.free_gpus[room.type_of_node == room.gpu_types.index(gpu_type)].sum()
                    )
                    assert not min(left, milli) or of_queue >= 2 * left or of_type >= 4 * free
        earlier.append(candidate)


def _wanted(candidate: StartCandidate, gpu_type: GpuType, left: int) -> int:
    """The most that one of its options asks of a type."""
    return max(min(option.charge.get(gpu_type, 0), left) for option in candidate.options)


def test_who_stands_in_a_strict_line_is_not_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contest, "ALL_MAX", 0)
    candidates, _, shares, room = asked_of(CROWDED)
    in_line = [_in_line(candidate) for candidate in candidates]
    assert contenders(in_line, (), shares, room) == tuple(in_line)


def _in_line(candidate: StartCandidate) -> StartCandidate:
    return StartCandidate(
        candidate.job, candidate.sub_layer, candidate.band, candidate.options, candidate.likeness, strict=True
    )


@pytest.mark.parametrize(
    "world", [pytest.param(CROWDED, marks=pytest.mark.thorough), EMPTY, SMALL], ids=["crowded", "empty", "small"]
)
def test_what_is_said_of_the_best_holds_for_all_who_wait(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    among_all = _solved(world)
    monkeypatch.setattr(contest, "ALL_MAX", 0)
    monkeypatch.setattr(contest, "FREE_TIMES", 0)  # Nobody but whom greedy starts.
    among_few = _solved(world)
    assert among_few.certificate.columns < among_all.certificate.columns
    assert violations(world.snapshot, world.policy, among_few) == ()
    for few, every in zip(among_few.certificate.layers, among_all.certificate.layers, strict=True):
        assert few.bound >= few.value
        if few.value != pytest.approx(every.value):
            assert few.status == "unproven" or every.value < few.value
            assert every.value <= few.bound
            break
    else:
        raise AssertionError("the rounds should differ: the one had nothing to choose among")


def _solved(world: World) -> Plan:
    return solve(world.snapshot, world.policy, optimise)
