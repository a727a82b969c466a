"""Recorded rounds replay byte for byte on a busy machine, whether the program had its time, was cut short or never answered."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hack.rounds.cases import with_limit
from hack.rounds.load import busy
from hack.rounds.onward import Onward
from hack.rounds.world import World
from reconciler.control.recording import solver_with
from reconciler.control.replay import replay
from reconciler.protocols.rounds import RoundRecord
from reconciler.store.store import open_store
from solver.checker.check import violations
from solver.milp.highs import optimise
from solver.milp.optimiser import Effort, Program, Solution
from solver.model.arrays import Floats
from solver.model.quantities import Duration, Instant
from solver.round.solve import solve

WORLD = World(256, pending=60, full=0.8)
CHURN = 0.08
LIMIT_S = 600


class Hurried:
    """HiGHS, with a time that is drawn for each question: more than enough, next to none, none, or it does not answer at all.

    What it finds in next to no time depends on how busy the machine is.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def __call__(self, program: Program, start: Floats, effort: Effort) -> Solution | None:
        # A round asks several questions: in some rounds each has its time.
        limit_s = self._chance.choice((*[effort.time_limit_s] * 9, 0.01, 0.0, None))
        return None if limit_s is None else optimise(program, start, replace(effort, time_limit_s=limit_s))


def decided(rounds: int) -> Iterator[RoundRecord]:
    """Rounds of a cluster in which what was decided happens, jobs end and others come."""
    policy, snapshot = with_limit(WORLD.policy, LIMIT_S), WORLD.snapshot
    solve_once = solver_with(Hurried(random.Random(1)))
    onward = Onward(WORLD.workload(random.Random(2), "later"), random.Random(3), CHURN)
    for number in range(1, rounds + 1):
        plan, answers = solve_once(snapshot, policy).conclude()
        yield RoundRecord(number, snapshot.time, "revision", snapshot, policy, plan, {}, answers)
        snapshot = onward.after(snapshot, plan)


def recorded(rounds: int, file: Path) -> list[RoundRecord]:
    """The same, written to a store and read from it again."""
    store = open_store(file)
    epoch = store.ledger.lead("test", Instant(1), Duration(1))
    numbers = [store.history.record_round(epoch, record) for record in decided(rounds)]
    records = [store.history.round(number) for number in numbers]
    store.close()
    return records


def recorded_and_replayed(rounds: int, folder: Path, hogs: int) -> list[RoundRecord]:
    """The rounds on record, each of which replays, breaks no rule and beats none of its bounds."""
    with busy(hogs):
        records = recorded(rounds, folder / "store")
        replayed = [replay(record, optimise) for record in records]
    assert [known.difference for known in replayed] == [""] * rounds
    assert all(known.identical for known in replayed)
    for record in records:
        assert violations(record.snapshot, record.policy, record.plan) == ()
        assert all(layer.value <= layer.bound for layer in record.plan.certificate.layers)
    return records


def test_recorded_rounds_replay_byte_for_byte(tmp_path: Path) -> None:
    # The rest of the suite is a load, too.
    records = recorded_and_replayed(6, tmp_path, hogs=1)
    assert 0 < sum(bool(record.solution) for record in records) < len(records)


@pytest.mark.thorough
def test_a_hundred_rounds_replay_byte_for_byte(tmp_path: Path) -> None:
    records = recorded_and_replayed(100, tmp_path, hogs=3)
    assert {record.plan.certificate.stage for record in records} >= {"greedy", "mip"}
    cut = [record for record in records if record.solution]
    assert 25 < len(cut) < 90, "some are to be replayed from their answers, others computed again"
    anew = (solve(record.snapshot, record.policy, optimise) for record in cut)
    assert any(plan != record.plan for plan, record in zip(anew, cut, strict=True)), "no cut made a difference"
