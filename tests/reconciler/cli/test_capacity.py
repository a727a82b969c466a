"""`quorate capacity` on a history of its own: the text, the JSON, the report, what is refused, and a search that goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reconciler.analysis.backtest.backtest import Backtest
from reconciler.cli.exits import ExitCode
from reconciler.cli.main import run
from reconciler.documents.schemas import validator_of
from reconciler.protocols.history import Event
from tests.contracts.simulated_worlds import NODES
from tests.reconciler.api.conftest import NOW, Site
from tests.reconciler.cli.conftest import Now, Quorate, on, submitted

GOLDEN = """\
2026-11-01T08:00:00Z to 2026-11-02T00:00:00Z, 3 jobs of week.jsonl; 1 node, 8
GPUs
Most was waited for: H100-SXM5-80GB (47.6 of the 47.6 GPU-hours waited).
Longest for it: job-2: needs 8 H100-SXM5-80GB, 0 free.

Demand
CLASS     GPU TYPES       JOBS  GPU-HOURS  PEAK GPUS  WAIT P50  WAIT P90
standard  H100-SXM5-80GB     3       48.0         24     1h59m     3h58m

GPU types
GPU TYPE        GPUS  HELD GPU-HOURS   HELD  ALL HELD FOR
H100-SXM5-80GB     8            48.0  37.5%         37.5%

What was waited for
WAITED FOR      CLASS     JOBS  GPU-HOURS  JOB-HOURS
H100-SXM5-80GB  standard     2       47.6        6.0

At the peak of each class
CLASS     PEAK         JOBS  GPUS  WAITED FOR      NOT BEFORE
standard  11-01 08:02     2    16  H100-SXM5-80GB  11-01 12:00

What if
                     as it is         +2 gpus
nodes                       1          3 (+2)
GPUs                        8        24 (+16)
jobs started                3               3
could never run             0               0
wait, p50               1h59m     0s (-1h59m)
wait, p90               3h58m     0s (-3h58m)
GPU-hours waited         47.6     0.0 (-47.6)
H100-SXM5-80GB held     37.5%  12.5% (-25.0%)

Nodes tried
NODES  MAX WAIT  TARGET
   +0     3h58m  missed
   +1     1h58m  missed
   +2        0s  met

Target max wait of class standard < 1h: met with 2 more nodes of 8
H100-SXM5-80GB, like those of gpus (0s), and not with 1 (1h58m).
"""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One node of 8 H100, and the history of three gangs that each held all of it for two hours."""
    monkeypatch.chdir(tmp_path)
    for folder in ("policies", "cluster-state"):
        (tmp_path / folder).mkdir()
    head = "apiVersion: quorate.dev/v1\nkind: {}\nmetadata: {{name: {}}}\nspec: {}\n"
    quota = "{quota: [{gpuType: H100-SXM5-80GB, guaranteed: 8}]}"
    (tmp_path / "policies" / "queue.yaml").write_text(head.format("Queue", "research", quota))
    (tmp_path / "policies" / "class.yaml").write_text(head.format("PriorityClass", "standard", "{value: 100}"))
    pool = "{nodes: {prefix: n, count: 1}, gpuType: H100-SXM5-80GB, gpusPerNode: 8, cpu: 96, memory: 1Ti}"
    (tmp_path / "cluster-state" / "pool.yaml").write_text(head.format("NodePool", "gpus", pool))
    lines: list[object] = [{"apiVersion": "quorate.dev/v1", "kind": "History", "exportedAt": "2026-11-02T00:00:00Z"}]
    lines += [recorded(place) for place in range(3)]
    (tmp_path / "week.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    return tmp_path


def recorded(place: int) -> object:
    shape = {"gpus": 8, "gpuTypes": ["H100-SXM5-80GB"]}
    spec = {"queue": "research", "priorityClass": "standard", "timeLimit": "3h"}
    began, ended = (f"2026-11-01T{hour + 2 * place:02}:00:00Z" for hour in (8, 10))
    return {
        "name": f"job-{place}",
        "user": "ann",
        "submittedAt": f"2026-11-01T08:{place:02}:00Z",
        "endedAt": ended,
        "endedAs": "succeeded",
        "spec": {**spec, "taskGroups": [{"name": "worker", "replicas": 1, "shape": shape}]},
        "attempts": [{"startedAt": began, "endedAt": ended}],
    }


def capacity(*arguments: str) -> int:
    return run(["capacity", "--history", "week.jsonl", "--greedy", *arguments])


@pytest.mark.usefixtures("world")
def test_the_text_says_what_is_short_and_that_two_nodes_more_meet_the_target(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert capacity("--target", "max wait of standard < 1h", "--add", "gpus:2") == ExitCode.OK
    out = capsys.readouterr().out
    assert out == GOLDEN
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.usefixtures("world")
def test_json_is_as_its_schema_has_it_and_the_report_is_one_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert capacity("--target", "max wait of standard < 1h", "-o", "json", "--html", "report.html") == ExitCode.OK
    found = json.loads(capsys.readouterr().out)
    validator_of("CapacityReport").validate(found)
    assert (found["search"]["nodes"], [one["nodes"] for one in found["search"]["tried"]]) == (2, [0, 1, 2])
    page = Path("report.html").read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert "<script" not in page
    assert "met with 2 more nodes" in page


@pytest.mark.usefixtures("world")
def test_a_search_that_was_interrupted_goes_on_from_what_it_kept(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ("--target", "max wait of standard < 1h", "--keep", "kept.json")
    real, replays = Backtest.replayed, list[str]()

    def interrupted(self: Backtest, candidate: object, follow: object) -> object:
        replays.append("one")
        if len(replays) == 3:
            raise KeyboardInterrupt
        return real(self, candidate, follow)  # type: ignore[arg-type]

    monkeypatch.setattr(Backtest, "replayed", interrupted)
    assert capacity(*asked) == ExitCode.INTERRUPTED
    assert "interrupted: 1 more do not meet the target" in capsys.readouterr().err
    replays[:] = ["before"] * 3
    assert capacity(*asked) == ExitCode.OK
    assert len(replays) == 3 + 2, "the cluster as it is, and +2: +1 was kept"
    assert "met with 2 more nodes" in capsys.readouterr().out
    assert capacity("--target", "max wait of standard < 2h", "--keep", "kept.json") == ExitCode.ERROR
    assert "it is of another search" in capsys.readouterr().err


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize(
    ("option", "written", "said"),
    [
        ("--target", "", "character 1: there is nothing in it"),
        ("--target", "p0 wait < 1h", "character 1: 'p0' is no percentile"),
        ("--target", "p90 wat < 1h", "character 5: 'wat' is not what can be asked for"),
        ("--target", "p90 wait", "character 9: there is no limit"),
        ("--target", "p90 wait <", "character 11: there is no limit after <"),
        ("--target", "p90 wait < 1", "character 12: expected a duration"),
        ("--target", "p90 wait < 0s", "character 12: no wait is below 0s"),
        ("--target", "p90 wait <= 1h", "character 10: '<=' is not understood"),
        ("--target", "p90 wait < 1h now", "character 15: 'now' stands after the limit"),
        ("--target", "p90 wait for x < 1h", "character 10: 'for' is not understood"),
        ("--target", "p90 wait of < 1h", "character 13: there is no name after of"),
        ("--target", "p90 wait of standrad < 1h", "Did you mean standard?"),
        ("--target", "p90 wait of queue reserch < 1h", "there is no queue reserch\n  Did you mean research?"),
        ("--target", "p90 wait of type H100 < 1h", "Known: H100-SXM5-80GB."),
        ("--target", "p90 wait of slo preemptible < 1h", "no job of this time is of slo preemptible"),
        ("--add", "", "character 1: it does not say which nodes"),
        ("--add", "16xB200-node:2", "character 4: there is no pool or GPU type B200"),
        ("--add", "gpu:2", "Did you mean gpus?"),
        ("--add", "gpus:", "character 6: there is no number of nodes"),
        ("--add", "gpus:two", "character 6: 'two' is no number of nodes"),
        ("--add", "gpus:0", "character 6: 0 nodes can't be tried"),
        ("--add", "99xgpus:1", "character 1: 99 GPUs on a node can't be tried"),
        ("--add", "gpus", "an --add says no number of nodes"),
        ("--keep", "kept.json", "--keep is for --target"),
        ("--server", "http://127.0.0.1:1", "--server excludes --history"),
    ],
)
def test_what_is_refused(option: str, written: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert capacity(option, written) == ExitCode.USAGE
    captured = capsys.readouterr()
    assert (captured.out, said in captured.err) == ("", True), captured.err


def test_a_server_says_which_jobs_and_nodes_there_are(
    site: Site, now: Now, at_server: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quorate: Quorate
) -> None:
    """Its only job holds two GPUs since it was seen to run, half an hour after it was submitted."""
    assert now.instant == NOW
    monkeypatch.chdir(tmp_path)
    head = "apiVersion: quorate.dev/v1\nkind: {}\nmetadata: {{name: {}}}\nspec: {}\n"
    (tmp_path / "queue.yaml").write_text(head.format("Queue", "team", "{}"))
    nothing = quorate("capacity", "--greedy")
    assert (nothing.exit_code, "there is no job that can be replayed" in nothing.err) == (ExitCode.ERROR, True)
    submitted(site, "held", gpus=2, at=NOW.after(-3_600_000))
    site.bind("held", on(NODES[0], 0, 1))
    site.store.history.record_event(Event(NOW.after(-1_800_000), "running", "held", "it runs", "loop", "running", 1))
    ran = quorate("capacity", "--greedy", "-o", "json")
    assert ran.exit_code == ExitCode.OK, ran.err
    found = json.loads(ran.out)
    (case,) = found["cases"]
    assert (ran.exit_code, found["source"], case["name"], case["jobs"]) == (
        ExitCode.OK,
        "the server's jobs",
        "as it is",
        1,
    )
    assert case["gpus"] == sum(len(node.gpus) for node in NODES)
