"""The benchmark of passes: a small run has nothing to do in them, and says all that it measured."""

from __future__ import annotations

import json

from click.testing import CliRunner

from hack.bench_passes import main


def test_a_small_run_says_what_passes_cost() -> None:
    ran = CliRunner().invoke(main, ["--running", "20", "--waiting", "30", "--passes", "2", "-o", "json"])
    assert ran.exit_code == 0, ran.exception
    found = json.loads(ran.stdout)
    assert (found["nodes"], found["running"], found["waiting"], found["passes"]) == (3, 20, 30, 2)
    assert list(found["phase_ms"]) == [
        "sight",
        "settle",
        "observe",
        "solve",
        "check",
        "act",
        "explain",
        "alarm",
        "keep-free",
    ]
    assert min(found["cpu_s"], found["wall_s"], found["phase_ms"]["solve"], found["phase_ms"]["explain"]) > 0
