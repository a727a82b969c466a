"""What really happened beside what policies would have done; all of it can be worked out by hand.

Eight GPUs. `early` runs for an hour, saves every 20 minutes, is evicted after 50, and ends in a second attempt of 30 minutes.
`late` comes at minute 10, starts at minute 50 and runs for an hour. `waits` never starts.
"""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from reconciler.analysis.backtest.actuals import AS_IT_WAS, Actuals
from reconciler.analysis.backtest.backtest import PolicyCandidate
from reconciler.analysis.backtest.figures import Figure, PolicyFigures
from reconciler.analysis.backtest.history_file import Attempt, HistoryHead, RecordedJob
from reconciler.analysis.backtest.page import page
from reconciler.analysis.backtest.past import replayable, write_history
from reconciler.cli.exits import ExitCode
from reconciler.cli.main import run
from reconciler.documents.schemas import validator_of
from solver.model.document import encode
from solver.model.quantities import Duration, Instant
from solver.model.snapshot import snapshot_of
from solver.model.workload import Checkpoint, JobName
from tests.reconciler.analysis.backtest.backtests import LENT, MINUTE, SHARED, figures, simulation
from tests.solver.worlds import job, node

UNTIL = 180
EVICTED, SENT_BACK = "evict", "requeue"


def at(minute: int) -> Instant:
    return Instant(minute * MINUTE)


def past(name: str, queue: str, submitted: int, *attempts: Attempt, ended: int | None = None) -> RecordedJob:
    spec = msgspec.structs.replace(
        job(name, queue, 1, 8).spec, checkpoint=Checkpoint(Duration(20 * MINUTE)), time_limit=Duration(60 * MINUTE)
    )
    return RecordedJob(JobName(name), spec, "ann", at(submitted), attempts, None if ended is None else at(ended))


def days(stopped_for: str = EVICTED) -> list[RecordedJob]:
    first = msgspec.structs.replace(Attempt(at(0), at(50)), stopped_for=stopped_for)
    return [
        past("early", "borrower", 0, first, Attempt(at(110), at(140)), ended=140),
        past("late", "lender", 10, Attempt(at(50), at(110)), ended=110),
        past("waits", "lender", 20),
    ]


def as_it_was(jobs: list[RecordedJob], end: int = UNTIL) -> PolicyFigures:
    replayed = replayable(HistoryHead(at(UNTIL)), jobs)
    record = Actuals({one.name: one for one in jobs}, replayed.jobs, at(0), at(end), replayed.until)
    return record.figures(PolicyCandidate("lent", LENT, (node("n", 8),)), Duration(MINUTE))


def test_waits_use_and_what_was_lost() -> None:
    found = as_it_was(days())
    assert (found.name, found.jobs, found.started, found.ended, found.gpus) == (AS_IT_WAS, 3, 2, 2, 8)
    assert {one.queue: one.waits.p50 for one in found.queues} == {"borrower": Figure(0.0), "lender": Figure(2400.0)}
    # It waits still, 160 minutes after it came.
    assert found.waits.max == Figure(160 * 60.0, at_least=True)
    assert found.utilisation == pytest.approx(140 / UNTIL)
    (loss,) = found.losses
    assert (loss.queue, loss.means, loss.evictions) == ("borrower", "recorded", 1)
    # Of 50 minutes 40 were saved.
    assert found.lost_gpu_hours == pytest.approx(8 * 10 / 60)
    assert found.over_time.evictions[50 // 5] == sum(found.over_time.evictions) == 1


def test_what_nobody_recorded_is_left_out_with_a_note() -> None:
    found = as_it_was(days())
    assert (found.never, found.rounds, found.eta, found.digest) == (None, None, None, "")
    assert {"never", "rounds", "eta", "digest"}.isdisjoint(json.loads(encode(found)))
    assert any("no rounds, no forecasts" in note for note in found.notes)


def test_who_was_sent_back_without_a_word_is_no_eviction() -> None:
    found = as_it_was(days(SENT_BACK))
    assert (found.evictions, found.lost_gpu_hours) == (0, 0)
    assert any("1 attempt sent back without a word" in note for note in found.notes)
    assert not any("sent back" in note for note in as_it_was(days()).notes)


def test_what_happened_after_the_time_is_not_told() -> None:
    found = as_it_was(days(), end=45)
    assert (found.started, found.ended, found.evictions) == (1, 0, 0)
    assert found.utilisation == pytest.approx(1.0)
    assert found.waits.p99 == Figure(35 * 60.0, at_least=True)


def test_fairness_is_by_the_policy_that_it_is_held_against() -> None:
    lender = next(one for one in as_it_was(days()).queues if one.queue == "lender")
    assert lender.guaranteed == 8
    # From minute 10 on it was owed 8 GPUs, and had them for an hour of 170 minutes.
    assert lender.served == pytest.approx(60 / 170)


def test_it_stands_first_in_the_report() -> None:
    text = page(simulation(as_it_was(days()), figures(LENT), msgspec.structs.replace(figures(SHARED), name="shared")))
    assert "Differences, in brackets, are from as it was." in text
    assert "the record" in text


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    history, snapshot = tmp_path / "observed.jsonl.gz", tmp_path / "snapshot.json"
    write_history(history, HistoryHead(at(UNTIL)), days())
    nodes = (node("n", 8), msgspec.structs.replace(node("closed", 4), cordoned=True))
    snapshot.write_bytes(encode(snapshot_of(at(UNTIL), nodes, ())))
    (tmp_path / "policies").mkdir()
    for name in ("lender", "borrower"):
        text = f"apiVersion: quorate.dev/v1\nkind: Queue\nmetadata: {{name: {name}}}\nspec: {{}}\n"
        (tmp_path / "policies" / f"{name}.yaml").write_text(text)
    return {"history": str(history), "snapshot": str(snapshot), "policies": str(tmp_path)}


def simulate(files: dict[str, str], *more: str, **other: str) -> int:
    named = [word for option, value in (files | other).items() if value for word in (f"--{option}", value)]
    return run(["simulate", *named, "--greedy", "--no-eta", *more])


def test_on_the_command_line(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate(files, "--as-it-was", "-o", "json") == ExitCode.OK
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    validator_of("Simulation").validate(found)
    happened, policy = found["policies"]
    assert (happened["name"], happened["gpus"], policy["gpus"]) == (AS_IT_WAS, 12, 12)
    assert (happened["jobs"], policy["jobs"]) == (3, 3)
    assert "1 node with GPUs cordoned or not ready" in captured.err
    assert f"note: {AS_IT_WAS}: " in captured.err
    assert simulate(files, "--as-it-was") == ExitCode.OK
    (started,) = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("started ")]
    assert started == ["started", "2", "3", "(+1)"]


@pytest.mark.parametrize(
    ("more", "other", "exit_code", "said"),
    [
        (["--as-it-was", "--days", "2"], {}, ExitCode.ERROR, "the record ends at 1970-01-01T03:00:00Z"),
        ([], {"inventory": "."}, ExitCode.USAGE, "--inventory and --snapshot both name a cluster"),
        ([], {"snapshot": ""}, ExitCode.ERROR, "no GPUs are declared"),
    ],
)
def test_what_is_refused(
    files: dict[str, str],
    more: list[str],
    other: dict[str, str],
    exit_code: ExitCode,
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert simulate(files, *more, **other) == exit_code
    assert said in capsys.readouterr().err


def test_a_trace_does_not_say_what_became_of_its_jobs(
    files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("timestamp,duration,num_gpus,cluster\n2017-10-09 00:00:00,60,8,lender\n")
    dated = ["--from", "2017-10-09", "--days", "1", "--as-it-was"]
    assert simulate(files, *dated, history="", trace=str(trace)) == ExitCode.USAGE
    assert "--as-it-was is for --history" in capsys.readouterr().err
