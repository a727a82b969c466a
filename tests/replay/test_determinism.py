"""The same round gives the same plan, byte for byte: whatever the hash seed, the order of the input, the process and the load."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from hack.rounds.cases import with_limit
from hack.rounds.load import busy
from reconciler.control.optimiser import KillableOptimiser
from reconciler.control.recording import solver_with
from solver.checker.check import violations
from solver.model.document import encode
from solver.plan.plan import Bind, Evict, Nominate
from solver.round.solve import solve
from tests.replay.decided import LIMIT_S, world

HASH_SEEDS = ("0", "4711")


@pytest.mark.parametrize(
    ("gpus", "pending"),
    [
        (192, 60),
        pytest.param(512, 125, marks=pytest.mark.thorough),
        pytest.param(3072, 900, marks=pytest.mark.thorough, id="in stages"),
    ],
)
def test_the_same_plan_from_whatever_hash_seed_order_process_and_load(gpus: int, pending: int) -> None:
    this = world(gpus, pending)
    snapshot, policy = this.snapshot, with_limit(this.policy, LIMIT_S)
    with busy(1):
        others = [
            subprocess.Popen(
                [sys.executable, "-m", "tests.replay.decided", str(gpus), str(pending), seed],
                env={**os.environ, "PYTHONHASHSEED": seed},
                stdout=subprocess.PIPE,
            )
            for seed in HASH_SEEDS
        ]
        with KillableOptimiser() as optimiser:
            plan, answers = solver_with(optimiser)(snapshot, policy).conclude()
        greedy = solve(snapshot, policy, None)
        decided = [other.communicate()[0].splitlines() for other in others]
    assert [other.returncode for other in others] == [0] * len(others)
    assert decided == [[encode(plan), encode(greedy)]] * len(others)
    assert answers == "", "a clock had a say, and it was not to have one"
    assert {Bind, Evict, Nominate} <= {type(step) for step in plan.steps}
    assert violations(snapshot, policy, plan) == violations(snapshot, policy, greedy) == ()
