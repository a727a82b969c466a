"""Rounds of commands are decided as a control plane's: the program has a process of its own, and the round's time limit."""

from __future__ import annotations

import sys
from functools import partial

import pytest

import reconciler.optimiser
from hack.rounds.cases import with_limit
from hack.rounds.world import World
from reconciler.cli.deciding import program_beside
from solver.plan.check import violations
from solver.program.highs import optimise
from solver.solve import solve

WORLD = World(256, pending=60, full=0.95)


def test_a_program_that_hangs_is_ended_said_and_done_without(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hanging = (sys.executable, "-m", "tests.optimiser.misbehaving", "hang", "0")
    monkeypatch.setattr(
        reconciler.optimiser, "KillableOptimiser", partial(reconciler.optimiser.KillableOptimiser, hanging)
    )
    policy = with_limit(WORLD.policy, 3)  # Long enough for a child to start on a busy machine.
    with program_beside() as optimiser:
        plan = solve(WORLD.snapshot, policy, optimiser)
    assert plan.certificate.cut_by_clock
    assert violations(WORLD.snapshot, policy, plan) == ()
    first, *_ = capsys.readouterr().err.splitlines()
    assert first.startswith("note: the optimiser gave no answer within 2.8")


def test_a_command_decides_as_the_program_in_its_own_process_would() -> None:
    with program_beside() as optimiser:
        plan = solve(WORLD.snapshot, WORLD.policy, optimiser)
    assert plan.certificate.stage == "mip"
    assert plan == solve(WORLD.snapshot, WORLD.policy, optimise)
