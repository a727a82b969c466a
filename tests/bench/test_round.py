"""The benchmark of rounds on a small cluster: the same decisions whenever it runs, and a plan that the checker lets pass."""

from __future__ import annotations

import json

from click.testing import CliRunner

from hack.bench_round import main

SMALL = ["--gpus", "320", "--pending", "60", "-o", "json"]


def timed() -> list[dict[str, object]]:
    ran = CliRunner().invoke(main, SMALL, catch_exceptions=False)
    assert ran.exit_code == 0
    found: list[dict[str, object]] = json.loads(ran.stdout)
    return found


def test_a_contended_round_evicts_and_an_elastic_one_shrinks_too() -> None:
    rigid, elastic = timed()
    assert (rigid["violations"], elastic["violations"]) == (0, 0)
    for known, kinds in ((rigid, {"bind", "evict", "nominate"}), (elastic, {"bind", "evict", "nominate", "shrink"})):
        steps = known["steps"]
        assert isinstance(steps, dict)
        assert kinds <= set(steps)


def test_a_seed_decides_everything_but_the_time() -> None:
    first, second = timed(), timed()
    for found in (*first, *second):
        del found["solve_s"], found["check_s"]
    assert first == second
