"""Rounds of commands are decided as a control plane's: the program has a process of its own, and the round's time limit."""

from __future__ import annotations

import sys
from typing import Any

import pytest

import reconciler.control.optimiser
from hack.rounds.cases import with_limit
from hack.rounds.world import World
from reconciler.cli.optimiser import program_beside
from reconciler.control.optimiser import KillableOptimiser
from solver.checker.check import violations
from solver.milp.highs import optimise
from solver.round.solve import solve

WORLD = World(256, pending=60, full=0.95)


def test_a_program_that_hangs_is_ended_said_and_done_without(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hanging = (sys.executable, "-m", "tests.reconciler.control.optimiser.misbehaving", "hang", "0")
    make = reconciler.control.optimiser.KillableOptimiser

    def begun(**options: Any) -> KillableOptimiser:
        made = make(hanging, **options)
        made.warm_up()  # How long it takes a busy machine to start it is no matter here.
        return made

    monkeypatch.setattr(reconciler.control.optimiser, "KillableOptimiser", begun)
    policy = with_limit(WORLD.policy, 3)
    with program_beside() as optimiser:
        plan = solve(WORLD.snapshot, policy, optimiser)
    assert plan.certificate.cut_by_clock
    assert violations(WORLD.snapshot, policy, plan) == ()
    first, *_ = capsys.readouterr().err.splitlines()
    assert first.startswith("note: the optimiser gave no answer within 2.8")


def test_a_command_decides_as_the_program_in_its_own_process_would() -> None:
    policy = with_limit(WORLD.policy, 600)
    with program_beside() as optimiser:
        plan = solve(WORLD.snapshot, policy, optimiser)
    assert plan.certificate.stage == "mip"
    assert plan == solve(WORLD.snapshot, policy, optimise)
