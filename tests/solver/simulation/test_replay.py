"""A replay starts what fits, keeps the cadence, and loses nobody; its figures can be worked out by hand."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from reconciler.analysis.traces import TraceUnreadableError, read_philly
from solver.checker.check import violations
from solver.model.quantities import Duration, Instant
from solver.model.workload import JobName, QueueName
from solver.policy.policy import Queue, SchedulingPolicy, policy_of
from solver.simulation.replay import Replay
from solver.simulation.trace import TraceJob
from tests.solver.worlds import job, node, quota_of

MINUTE = 60_000
POLICY = policy_of((Queue(QueueName("a")), Queue(QueueName("b"))))
PHILLY = Path(__file__).parents[4] / "shared" / "traces" / "philly" / "philly.csv"


def trace(*jobs: tuple[str, str, int, int, int, int]) -> Iterator[TraceJob]:
    """Jobs as (name, queue, tasks, GPUs per task, submitted minute, minutes)."""
    for name, queue, tasks, gpus, submitted, minutes in jobs:
        yield TraceJob(job(name, queue, tasks, gpus, submitted=submitted * MINUTE), Duration(minutes * MINUTE))


def replay(cadence_ms: int = 1000) -> Replay:
    return Replay((node("n1", 8), node("n2", 8)), POLICY, None, Duration(cadence_ms))


def test_a_gang_waits_until_it_fits_and_its_wait_is_counted() -> None:
    held = replay()
    jobs = tuple(trace(("one", "a", 1, 8, 0, 30), ("both", "b", 2, 8, 10, 60), ("small", "a", 1, 4, 11, 5)))
    rounds = list(held.rounds(jobs, Instant(120 * MINUTE)))
    starts = {name: run.started_at for name, run in held.runs.items()}
    assert starts == {"one": 0, "small": 11 * MINUTE, "both": 30 * MINUTE}
    assert all(violations(r.snapshot, POLICY, r.plan) == () for r in rounds)


def test_at_most_one_round_per_cadence_and_nobody_is_lost() -> None:
    held = replay(cadence_ms=10 * MINUTE)
    jobs = tuple(trace(*((f"j{number}", "a", 1, 8, number, 7) for number in range(20))))
    times = [r.snapshot.time for r in held.rounds(jobs, Instant(1000 * MINUTE))]
    assert all(later - earlier >= 10 * MINUTE for earlier, later in pairwise(times))
    assert len(held.runs) == 20
    assert all(run.ended_at is not None for run in held.runs.values())


def test_a_philly_table_is_read_as_gangs_of_exactly_their_gpus(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    rows = [
        "2017-10-09 07:01:55,66.0,20,1320.0,vc1",
        "2017-10-09 07:00:00,10.5,2,21.0,vc2",
        "2017-10-10 00:00:00,1,1,1,vc1",
    ]
    path.write_text("timestamp,duration,num_gpus,gpu_time,cluster\n" + "\n".join(rows) + "\n")
    read = read_philly(path, Instant.parse("2017-10-09T00:00:00Z"), Instant.parse("2017-10-10T00:00:00Z"))
    assert [
        (t.job.spec.queue, t.job.spec.task_groups[0].replicas, t.job.spec.gpus.number, t.duration) for t in read
    ] == [
        ("vc2", 1, 2, 10_500),
        ("vc1", 5, 20, 66_000),
    ]


HEADER = b"timestamp,duration,num_gpus,cluster\n"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a,b\n1,2\n", "no column timestamp"),
        (HEADER + b"yesterday,1,1,vc\n", ":2: expected a time"),
        (HEADER + b"2017-10-09 07:00:00,1,many,vc\n", ":2: num_gpus: 'many' is no number"),
        (HEADER + b"2017-10-09 07:00:00,1,1.5,vc\n", ":2: num_gpus: '1.5' is no whole number"),
        (HEADER + b"2017-10-09 07:00:00,1,-1,vc\n", ":2: num_gpus: '-1' is no number of at least 0"),
        (HEADER + b"2017-10-09 07:00:00,soon,1,vc\n", ":2: duration: 'soon' is no number"),
        (HEADER + b"2017-10-09 07:00:00,nan,1,vc\n", ":2: duration: 'nan' is no number"),
        (HEADER + b"2017-10-09 07:00:00,inf,1,vc\n", ":2: duration: 'inf' is no number"),
        (HEADER + b"2017-10-09 07:00:00,-5,1,vc\n", ":2: duration: '-5' is no number of at least 0"),
        (HEADER + b"2017-10-09 07:00:00,1,1\n", ":2: cluster is empty"),
        (HEADER + b"2017-10-09 07:00:00,1,1,\xe9\n", "not UTF-8"),
        (HEADER + b'2017-10-09 07:00:00,1,1,"' + b"x" * 200_000 + b'"\n', "no CSV: field larger"),
    ],
)
def test_a_broken_trace_says_where(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(content)
    with pytest.raises(TraceUnreadableError, match=said):
        read_philly(path, Instant(0), Instant.parse("2030-01-01T00:00:00Z"))


def test_a_trace_is_read_as_tools_write_it(tmp_path: Path) -> None:
    """With a byte order mark, line ends of Windows, whole numbers as 8.0, and times as RFC 3339 has them."""
    path = tmp_path / "trace.csv"
    path.write_bytes(b"\xef\xbb\xbf" + HEADER.replace(b"\n", b"\r\n") + b"2017-10-09T07:00:00Z,60,8.0,vc\r\n")
    (read,) = read_philly(path, Instant(0), Instant.parse("2030-01-01T00:00:00Z"))
    assert (read.job.spec.gpus.number, read.job.spec.queue, read.duration) == (8, "vc", 60_000)
    assert read.job.submitted_at == Instant.parse("2017-10-09T07:00:00Z")


@pytest.mark.long
@pytest.mark.skipif(
    not PHILLY.exists(), reason="the Philly trace is not beside this checkout (../shared/traces/philly)"
)
def test_a_morning_of_philly_replays_without_a_violation() -> None:
    start = Instant.parse("2017-10-09T06:00:00Z")
    jobs = read_philly(PHILLY, start, start.after(6 * 60 * MINUTE))
    names = sorted({t.job.spec.queue for t in jobs})
    queues = policy_of(tuple(Queue(QueueName(name)) for name in names), (), SchedulingPolicy(estimated_jobs=20))
    nodes = tuple(msgspec.structs.replace(node(f"n{i:02}", 8), rack=f"r{i // 4}", block="b") for i in range(6))
    held = Replay(nodes, queues, None, Duration(MINUTE))
    for decided in held.rounds(jobs, start.after(6 * 60 * MINUTE)):
        assert violations(decided.snapshot, queues, decided.plan) == ()
    assert len(held.runs) == len(jobs) > 200


def test_past_use_is_in_every_snapshot_as_of_its_time() -> None:
    policy = msgspec.structs.replace(POLICY, scheduling=SchedulingPolicy(usage_half_life=Duration(60 * MINUTE)))
    held = Replay((node("n1", 8), node("n2", 8)), policy, None, Duration(1000))
    jobs = trace(("one", "a", 1, 8, 0, 60), ("later", "b", 1, 1, 120, 5))
    first, last = (known.snapshot.in_flight.usage for known in held.rounds(jobs, Instant(1000 * MINUTE)))
    assert first == ()
    # 8 GPUs for one half-life, then idle for one: 8 / ln 2 * (1 - 1/2) / 2 GPU-hours.
    assert [used.queue for used in last] == ["a"]
    assert last[0].gpu_hours == pytest.approx(8 / 0.693147 / 4, rel=1e-5)


def test_what_an_evicted_job_held_is_counted_once_and_it_runs_again() -> None:
    """Half of the cluster is the lender's. The borrower's job is evicted after an hour, waits for two, and does all again."""
    queues = policy_of(
        (
            Queue(QueueName("lender"), quota=(quota_of("H100", 8),)),
            Queue(QueueName("borrower"), quota=(quota_of("H100", 0),)),
        )
    )
    hour = 60 * MINUTE
    jobs = [
        TraceJob(msgspec.structs.replace(job("lent", "borrower", 1, 8), submitted_at=Instant(0)), Duration(4 * hour)),
        TraceJob(msgspec.structs.replace(job("owner", "lender", 1, 8), submitted_at=Instant(hour)), Duration(2 * hour)),
    ]
    held = Replay((node("n", 8),), queues, None, Duration(MINUTE))
    for decided in held.rounds(jobs, Instant(20 * hour)):
        assert violations(decided.snapshot, queues, decided.plan) == ()
    lent, owner = held.runs[JobName("lent")], held.runs[JobName("owner")]
    assert (lent.evictions, owner.evictions) == (1, 0)
    assert owner.started_at == hour + MINUTE  # promised in one round, bound in the next
    restart_ms = queues.scheduling.evictions.restart_cost
    assert lent.held_gpu_ms == 8 * (hour + 4 * hour + restart_ms)
    assert owner.ended_at is not None
    assert lent.ended_at == owner.ended_at + 4 * hour + restart_ms
