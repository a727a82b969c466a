"""The benchmark of overruns: rounds whose program needs more time than it has, which are cut and break no rule."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from hack.bench_deadline import main

CUT_AT_ONCE = ("--gpus", "512", "--pending", "150", "--budget-s", "0.03")


@pytest.mark.thorough
def test_rounds_that_the_clock_cut_break_no_rule() -> None:
    done = CliRunner().invoke(
        main, [*CUT_AT_ONCE, "--rounds", "2", "--hogs", "1", "-o", "json"], catch_exceptions=False
    )
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert (found["rounds"], found["asked"], found["cut"], found["checker_violations"]) == (2, 2, 2, 0)
    assert 0 < found["of_budget_p50"] <= found["of_budget_p99"] <= found["of_budget_max"]


def test_the_same_for_people() -> None:
    done = CliRunner().invoke(main, [*CUT_AT_ONCE, "--rounds", "1", "--hogs", "0"], catch_exceptions=False)
    assert done.exit_code == 0
    assert "1 of 1 rounds were cut" in done.stdout
    assert "waited, in parts of the limit: p50" in done.stdout
