"""`quorate simulate` on a small trace of its own: side by side, as JSON, as a report, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reconciler.cli.exits import ExitCode
from reconciler.cli.main import run
from reconciler.documents.schemas import data_folder, validator_of

POLICIES = str(data_folder("policies"))
ROWS = ["2017-10-09 00:00:00,3600,16,0,one", "2017-10-09 00:10:00,600,8,0,two", "2017-10-09 00:20:00,600,32,0,two"]

GOLDEN = """\
Queue one                  equal            first
wait, mean                    0s               0s
wait, p50                     0s               0s
wait, p90                     0s               0s
wait, p99                     0s               0s
wait, max                     0s               0s
GPU-hours                   20.0      16.0 (-4.0)
guaranteed GPUs                8          16 (+8)
got of what it was owed    87.7%  100.0% (+12.3%)
finish-time fairness, p90  0.713   1.000 (+0.287)
evictions                      1           0 (-1)
GPU-hours lost               4.0       0.0 (-4.0)

Queue two                   equal          first
wait, mean                 ≥2h50m         ≥3h15m
wait, p50                     30s  50m (+49m30s)
wait, p90                  ≥5h40m         ≥5h40m
wait, p99                  ≥5h40m         ≥5h40m
wait, max                  ≥5h40m         ≥5h40m
GPU-hours                     1.3            1.3
guaranteed GPUs                 8         0 (-8)
got of what it was owed     95.2%              -
finish-time fairness, p90   1.050              -
evictions                       0              0
GPU-hours lost                0.0            0.0
"""


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "trace.csv"
    path.write_text("timestamp,duration,num_gpus,gpu_time,cluster\n" + "\n".join(ROWS) + "\n")
    return str(path)


def repository(path: Path, one: int, two: int) -> str:
    """Two nodes of 8 GPUs, so many of which each of two queues is guaranteed."""
    (path / "policies").mkdir(parents=True)
    (path / "cluster-state").mkdir()
    head = "apiVersion: quorate.dev/v1\nkind: {}\nmetadata: {{name: {}}}\nspec: {}\n"
    for name, gpus in (("one", one), ("two", two)):
        quota = f"{{quota: [{{gpuType: H100-SXM5-80GB, guaranteed: {gpus}}}]}}"
        (path / "policies" / f"{name}.yaml").write_text(head.format("Queue", name, quota))
    pool = "{nodes: {prefix: n, count: 2}, gpuType: H100-SXM5-80GB, gpusPerNode: 8, cpu: 96, memory: 1Ti}"
    (path / "cluster-state" / "pool.yaml").write_text(head.format("NodePool", "gpus", pool))
    return str(path)


def simulate(trace: str, *more: str) -> int:
    return run(["simulate", "--trace", trace, "--from", "2017-10-09", "--days", "0.25", *more])


def test_json_is_as_its_schema_has_it(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate(trace, "--policies", POLICIES, "-o", "json") == ExitCode.OK
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    validator_of("Simulation").validate(found)
    assert "none of the trace's 2 queues is in the policy" in captured.err
    (figures,) = found["policies"]
    assert (figures["jobs"], figures["started"], figures["gpus"]) == (3, 3, 384)
    assert figures["utilisation"] == pytest.approx((16 * 3600 + 8 * 600 + 32 * 600) / (384 * 6 * 3600))


def test_two_policies_side_by_side_and_the_report(
    trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    repository(tmp_path / "equal", 8, 8)
    repository(tmp_path / "first", 16, 0)
    both = ["--policies", "equal", "--policies", "first", "--greedy"]
    assert simulate(trace, *both, "--html", "report.html") == ExitCode.OK
    out = capsys.readouterr().out
    assert out.startswith("2017-10-09T00:00:00Z to 2017-10-09T06:00:00Z, 3 jobs of trace.csv\n\nAll jobs")
    assert GOLDEN in out
    assert (tmp_path / "report.html").read_text().startswith("<!DOCTYPE html>")
    assert simulate(trace, *both) == ExitCode.OK
    assert capsys.readouterr().out == out


@pytest.mark.parametrize(
    ("arguments", "exit_code", "said"),
    [
        (["--from", "2018-01-01", "--days", "1", "--policies", POLICIES], ExitCode.ERROR, "no jobs from 2018-01-01"),
        (["--from", "October", "--days", "1", "--policies", POLICIES], ExitCode.USAGE, "is no date"),
        (["--from", "2017-10-09", "--days", "1"], ExitCode.USAGE, "name at least one policy"),
        (["--policies", POLICIES], ExitCode.USAGE, "needs --from and --days"),
        (["--policies", POLICIES, "--policies", POLICIES], ExitCode.USAGE, "named twice"),
        (
            ["--policies", POLICIES, "--history", POLICIES + "/README.md"],
            ExitCode.USAGE,
            "one of --trace and --history",
        ),
    ],
)
def test_what_is_refused(
    trace: str, arguments: list[str], exit_code: ExitCode, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["simulate", "--trace", trace, *arguments]) == exit_code
    assert said in capsys.readouterr().err
