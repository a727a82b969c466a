"""`quorate simulate` on a small trace of its own: the table, the JSON, and errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reconciler.cli.exits import Exit
from reconciler.cli.main import run
from reconciler.shipped import shipped

POLICIES = str(shipped("policies"))
ROWS = ["2017-10-09 00:00:00,3600,256,0,vc1", "2017-10-09 00:10:00,600,8,0,vc2", "2017-10-09 00:20:00,600,384,0,vc2"]


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "trace.csv"
    path.write_text("timestamp,duration,num_gpus,gpu_time,cluster\n" + "\n".join(ROWS) + "\n")
    return str(path)


def simulate(trace: str, *more: str) -> int:
    return run(["simulate", "--trace", trace, "--from", "2017-10-09", "--days", "0.25", "--policies", POLICIES, *more])


def test_json_has_waits_by_queue_and_utilisation(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate(trace, "-o", "json") == Exit.OK
    captured = capsys.readouterr()
    report = json.loads(captured.out)
    assert "none of the trace's 2 queues is in the policy" in captured.err
    # The whole cluster is mixed: no type alone has 384 GPUs, so the third job can never run.
    assert (report["jobs"], report["started"], report["gpus"]) == (3, 2, 384)
    assert report["utilisation"] == pytest.approx((256 * 3600 + 8 * 600) / (384 * 6 * 3600))
    assert [(row["queue"], row["jobs"], row["started"]) for row in report["queues"]] == [("vc1", 1, 1), ("vc2", 2, 1)]


def test_text_has_a_row_per_queue(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate(trace, "--greedy") == Exit.OK
    out = capsys.readouterr().out
    assert "vc1" in out
    assert "2 of 3 jobs started" in out


def test_days_without_jobs_are_an_error(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run(["simulate", "--trace", trace, "--from", "2018-01-01", "--days", "1", "--policies", POLICIES]) == Exit.ERROR
    )
    assert "no jobs from 2018-01-01T00:00:00Z" in capsys.readouterr().err


def test_a_date_that_is_none_is_a_usage_error(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", "--trace", trace, "--from", "October", "--days", "1", "--policies", POLICIES]) == Exit.USAGE
    assert "is no date" in capsys.readouterr().err
