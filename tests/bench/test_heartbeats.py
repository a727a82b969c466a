"""The benchmark of heartbeats: what its figures mean, and that a small run counts every beat."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from hack.bench_heartbeats import main
from hack.heartbeats.figures import quantile
from hack.heartbeats.stamps import Stamps
from hack.heartbeats.world import node, number_of


def test_a_quantile_is_one_of_the_values() -> None:
    values = [float(number) for number in range(1, 101)]
    assert [quantile(values, share) for share in (0.01, 0.5, 0.99, 1.0)] == [1, 50, 99, 100]
    assert quantile([3.0], 0.5) == quantile([3.0], 0.99) == 3
    assert quantile([1.0, 2.0, 3.0], 0.5) == 2
    assert quantile([], 0.5) == 0


def test_stamps_are_seen_by_others(tmp_path: Path) -> None:
    with Stamps(tmp_path / "stamps", 3) as mine, Stamps(tmp_path / "stamps", 3) as others:
        mine.sent(2, 2**62)
        assert [others.last_ns(agent) for agent in range(3)] == [0, 0, 2**62]
    assert [number_of(node(number)) for number in (0, 12_499)] == [0, 12_499]


@pytest.mark.thorough
def test_a_small_run_hears_every_agent() -> None:
    small = ["--agents", "12", "--every-s", "0.2", "--for-s", "2", "-o", "json"]
    ran = CliRunner().invoke(main, small, catch_exceptions=False)
    assert ran.exit_code == 0
    found = json.loads(ran.stdout)
    assert found["connections"] == 12
    beats = found["heartbeats_per_s"] * found["seconds"]
    # On a machine that has no time agents beat late, and never more often.
    assert 12 <= beats <= 12 * (found["seconds"] / 0.16 + 1)
    assert 0 < found["p50_ms"] <= found["p99_ms"] <= found["max_ms"]
    assert found["cpu_us_per_beat"] > 0
