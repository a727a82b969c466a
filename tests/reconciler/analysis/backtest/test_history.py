"""From what a control plane has on record to a replay: what a history says of each attempt, and what is made of it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reconciler.analysis.backtest.history_file import Attempt, Ended, HistoryHead, RecordedJob, aliased, recorded
from reconciler.analysis.backtest.past import read_history, write_history
from reconciler.analysis.traces import TraceUnreadableError
from reconciler.documents.schemas import validator_of
from reconciler.model.job_record import JobOutcome, JobRecord
from reconciler.protocols.history import Event
from solver.model.document import encode
from solver.model.quantities import Duration, Instant
from solver.model.shape import Shape
from solver.model.workload import Checkpoint, Dependency, JobName, JobSpec, QueueName, TaskGroup

MINUTE = 60_000
SPEC = JobSpec(QueueName("a"), (TaskGroup("worker", 1, Shape(gpus=1)),), checkpoint=Checkpoint(Duration(10 * MINUTE)))
UNTIL = Instant(1_000 * MINUTE)


def at(minute: int) -> Instant:
    return Instant(minute * MINUTE)


def event(minute: int, kind: str, attempt: int, purpose: str = "") -> Event:
    return Event(at(minute), kind, "job", "cause", "loop", attempt=attempt, purpose=purpose)


def past(name: str, *attempts: Attempt, submitted: int = 0, ended: int | None = None, **of: object) -> RecordedJob:
    spec = msgspec.structs.replace(SPEC, **of)
    return RecordedJob(JobName(name), spec, "ann", at(submitted), attempts, None if ended is None else at(ended))


def test_events_become_attempts() -> None:
    outcome = JobOutcome("succeeded", at(100), attempt=3)
    record = JobRecord(JobName("job"), SPEC, "ann", at(0), outcome=outcome)
    events = [
        event(1, "bound", 1),
        event(2, "running", 1),
        event(20, "asked-to-stop", 1, "evict"),
        event(21, "called-off", 1),
        event(40, "asked-to-stop", 1, "evict"),
        event(45, "released", 1),
        event(50, "bound", 2),
        event(55, "released", 2),
        event(60, "running", 3),
        event(70, "asked-to-stop", 3, "suspend"),
        event(71, "called-off", 3),
        event(101, "released", 3),
    ]
    found = recorded(record, SPEC, events)
    # The second attempt never ran; the work of the third was over a minute before its devices were free.
    assert found.attempts == (Attempt(at(2), at(45), "evict"), Attempt(at(60), at(100)))
    assert (found.ended_at, found.ended_as) == (at(100), "succeeded")


@pytest.mark.parametrize(
    ("state", "attempts"),
    [("succeeded", (Attempt(at(1), at(2)),)), ("failed", (Attempt(at(1), at(2)),)), ("cancelled", ())],
)
def test_what_ended_before_it_was_seen_to_run_has_run(state: Ended, attempts: tuple[Attempt, ...]) -> None:
    record = JobRecord(JobName("job"), SPEC, "ann", at(0), outcome=JobOutcome(state, at(2), attempt=1))
    assert recorded(record, SPEC, [event(1, "bound", 1), event(3, "released", 1)]).attempts == attempts


@pytest.mark.parametrize("name", ["history.jsonl", "history.jsonl.gz"])
def test_what_a_history_says_is_replayed(tmp_path: Path, name: str) -> None:
    jobs = [
        past("plain", Attempt(at(5), at(25)), submitted=3, ended=25),
        # 43 minutes, of which 40 were saved, and 15 more. An attempt that failed counts for nothing.
        past("evicted", Attempt(at(0), at(43), "evict"), Attempt(at(50), at(60)), Attempt(at(70), at(85)), ended=85),
        past("runs", Attempt(at(900)), submitted=10),
        past("after", Attempt(at(200), at(210)), submitted=1, ended=210, depends_on=(Dependency(JobName("evicted")),)),
        past("waits", submitted=20, time_limit=Duration(30 * MINUTE)),
        past("waits-without-a-limit", submitted=21),
        past("cancelled", submitted=22, ended=23, time_limit=Duration(MINUTE)),
    ]
    assert write_history(tmp_path / name, HistoryHead(UNTIL), jobs) == 7
    assert [entry.name for entry in tmp_path.iterdir()] == [name]
    found = read_history(tmp_path / name)
    assert found.until == UNTIL
    assert [(one.job.name, one.job.submitted_at // MINUTE, one.duration // MINUTE) for one in found.jobs] == [
        ("evicted", 0, 55),
        ("plain", 3, 20),
        ("runs", 10, 100),
        ("waits", 20, 30),
        ("after", 85, 10),
    ]
    assert found.jobs[0].job.user == "ann"
    assert found.notes == (
        "cut at 1970-01-01T16:40:00Z, when the history was written: 1 job that had not ended",
        "left out: 1 job that ended without ever having run",
        "left out: 1 job still waiting at 1970-01-01T16:40:00Z, without a time limit to go by",
    )


def test_lines_are_as_their_schema_has_them() -> None:
    validator = validator_of("History")
    validator.validate(json.loads(encode(HistoryHead(UNTIL, aliased=True))))
    line = json.loads(encode(past("evicted", Attempt(at(0), at(43), "evict"), ended=85)))
    job = validator.evolve(schema={"$ref": "history.json#/$defs/recordedJob"})
    job.validate(line)
    assert not job.is_valid({**line, "command": ["true"]})


def test_aliases_hide_people_and_jobs_and_keep_what_belongs_together() -> None:
    jobs = [
        past("secret-project"),
        past("other", depends_on=(Dependency(JobName("secret-project")),), data=("corpus",)),
    ]
    one, two = aliased(jobs)
    assert (one.name, two.name, one.user, two.user) == ("job-2", "job-1", "user-1", "user-1")
    assert two.spec.depends_on == (Dependency(JobName("job-2")),)
    assert (two.spec.data, two.spec.queue) == ((), "a")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", r":1: "),
        (b'{"kind":"Plan"}\n', r":1: "),
        (b'{"kind":"History","exportedAt":"2026-01-01T00:00:00Z"}\n{"name":"a"}\n', r":2: "),
        (b'{"kind":"History","exportedAt":"2026-01-01T00:00:00Z"}\n\xff\n', r":2: "),
    ],
)
def test_a_broken_history_says_where(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "history.jsonl"
    path.write_bytes(content)
    with pytest.raises(TraceUnreadableError, match=said):
        read_history(path)


@pytest.mark.parametrize(
    "of", [{"queue": ""}, {"task_groups": ()}, {"task_groups": (TaskGroup("worker", -1, Shape(gpus=1)),)}]
)
def test_a_job_that_no_server_would_have_taken_is_said(tmp_path: Path, of: dict[str, Any]) -> None:
    write_history(tmp_path / "history.jsonl", HistoryHead(UNTIL), [past("a", **of)])
    with pytest.raises(TraceUnreadableError, match=":2: the job a has no queue or no tasks"):
        read_history(tmp_path / "history.jsonl")


def test_a_job_that_is_there_twice_is_said(tmp_path: Path) -> None:
    write_history(tmp_path / "history.jsonl", HistoryHead(UNTIL), [past("a"), past("a")])
    with pytest.raises(TraceUnreadableError, match=":3: there is a job a already"):
        read_history(tmp_path / "history.jsonl")


def test_a_cut_file_and_one_that_is_no_gzip_are_said(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl.gz"
    for content in (b"plain", gzip.compress(b"x" * 100_000)[:60]):
        path.write_bytes(content)
        with pytest.raises(TraceUnreadableError, match="not a whole gzip file"):
            read_history(path)
