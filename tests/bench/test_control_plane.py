"""The benchmark of a whole control plane: a small run starts a real one, and says all that it measured."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from hack.bench_control_plane import main

SMALL = (
    "--gpus 160 --live-jobs 40 --waiting 10 --watchers 2 --reads 2 --arrivals 1 --apart-s 0 --submit-s 0.5 --arrays 1"
)


@pytest.mark.thorough
def test_a_small_run_says_how_a_control_plane_keeps_up() -> None:
    ran = CliRunner().invoke(main, [*SMALL.split(), "--idle-s", "0.1", "--limit-s", "120", "-o", "json"])
    assert ran.exit_code == 0, ran.output
    found = json.loads(ran.stdout)
    assert [found.pop(name) for name in ("gpus", "live_jobs", "waiting", "seed")] == [160, 40, 10, 1]
    assert found.pop("store") == "sqlite"
    # So small a cluster has rounds that are as soon done: which of them come first is chance.
    assert 0 <= found.pop("narrow_share") <= 1
    assert None not in found.values(), found
    assert min(found.pop("idle_solves"), found.pop("idle_pass_ms")) >= 0
    assert min(found.values()) > 0
