"""The benchmark of rounds on small clusters: the same decisions whenever it runs, and plans that the checker lets pass."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from hack.bench_round import main
from hack.busy_cluster import EXAMPLE, REPOSITORY

TIMES = ("cold_s", "solve_s", "check_s", "warm_p50_s", "warm_p99_s", "rss_mb", "placed_tasks_per_s")


def ran(*arguments: str) -> dict[str, object]:
    done = CliRunner().invoke(main, [*arguments, "-o", "json"], catch_exceptions=False)
    assert done.exit_code == 0
    (found,) = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def test_a_seed_decides_everything_but_the_time() -> None:
    first, second = (ran("--case", "4k", "--smaller", "8") for _ in range(2))
    for found in (first, second):
        for name in TIMES:
            del found[name]
    assert first == second


@pytest.mark.parametrize("case", ["warm", "victims"])
def test_no_round_breaks_a_rule(case: str) -> None:
    found = ran("--case", case, "--smaller", "100")
    assert found["checker_violations"] == 0
    steps = found["steps"]
    assert isinstance(steps, dict)
    assert {"evict", "nominate"} <= set(steps)


def test_who_cannot_wait_is_decided_while_others_come() -> None:
    found = ran("--case", "arrival", "--smaller", "16")
    more = found["more"]
    assert isinstance(more, dict)
    assert more["urgent"] == 3
    assert found["checker_violations"] == 0


def test_with_a_program_its_size_is_reported() -> None:
    found = ran("--case", "4k", "--smaller", "8", "--program-s", "1")
    columns, rows, nonzeros = (found[name] for name in ("columns", "rows", "nonzeros"))
    assert isinstance(columns, int)
    assert isinstance(rows, int)
    assert isinstance(nonzeros, int)
    assert nonzeros >= columns > 100
    assert rows > 100


def test_a_snapshot_of_ones_own_is_timed_under_its_policy() -> None:
    found = ran("--snapshot", str(EXAMPLE), "--policy", str(REPOSITORY))
    assert (found["case"], found["checker_violations"]) == ("file", 0)


def test_a_snapshot_without_its_policy_is_refused() -> None:
    refused = CliRunner().invoke(main, ["--snapshot", str(EXAMPLE)])
    assert refused.exit_code == 2
    assert "belong together" in refused.stderr
