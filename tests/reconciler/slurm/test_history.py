"""What really became of Slurm's jobs, as a history that replays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.analysis.backtest.past import read_history
from tests.reconciler.slurm.fake_slurm import VERSIONS, Beside, FakeJob, beside_slurm


@pytest.fixture
def beside(tmp_path: Path) -> Iterator[Beside]:
    with beside_slurm(tmp_path) as made:
        yield made


def spans(beside: Beside, job: str) -> list[tuple[int, int | None, str | None]]:
    """Attempts in seconds since the beginning, and what for each was stopped."""
    began = beside.clock._start
    return [
        ((one.started_at - began) // 1000, one.ended_at and (one.ended_at - began) // 1000, one.stopped_for)
        for one in beside.on_disk()[job].attempts
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_life_in_every_version(tmp_path: Path, version: str) -> None:
    with beside_slurm(tmp_path, version) as beside:
        beside.look()
        beside.look(FakeJob(1, submitted=40))
        beside.look(FakeJob(1, "RUNNING", "n1", submitted=40, started=70))
        beside.look(FakeJob(1, "COMPLETED", "n1", submitted=40, started=70, ended=100))
        beside.look()
        job = beside.on_disk()["train-1"]
        assert spans(beside, "train-1") == [(70, 100, None)]
        assert (job.ended_as, job.submitted_at - beside.clock._start) == ("succeeded", 41_000)
        past = read_history(beside.memory.files.history)
        assert [(one.job.name, one.duration) for one in past.jobs] == [("train-1", 30_000)]


def test_a_job_that_came_and_went_between_two_looks_is_on_record(beside: Beside) -> None:
    beside.look()
    beside.look(FakeJob(1, "FAILED", "n1", submitted=35, started=36, ended=50))
    assert spans(beside, "train-1") == [(36, 50, None)]
    assert beside.observer.summary.counts.unseen == 1
    assert beside.on_disk()["train-1"].ended_as == "failed"


def test_one_that_was_cancelled_before_it_began_never_ran(beside: Beside) -> None:
    beside.look(FakeJob(1))
    beside.look(FakeJob(1, "CANCELLED", "", started=45, ended=45))
    job = beside.on_disk()["train-1"]
    assert (job.attempts, job.ended_as) == ((), "cancelled")
    assert beside.observer.summary.starts == ()


def test_one_that_slurm_forgot_has_ended_and_it_is_not_known_how(beside: Beside) -> None:
    beside.look(FakeJob(1, "RUNNING", "n1", started=1))
    beside.look()
    job = beside.on_disk()["train-1"]
    assert (job.ended_as, job.is_over, spans(beside, "train-1")[0][1]) == (None, True, 60)


def test_preempted_and_begun_anew(beside: Beside) -> None:
    beside.look(FakeJob(1, "RUNNING", "n1", started=1))
    beside.look(FakeJob(1, "PENDING+PREEMPTED"))
    found = beside.look(FakeJob(1, "RUNNING", "n2", started=80))
    assert [how for _, _, how in spans(beside, "train-1")] == ["evict", None]
    assert found.counts.really_evicted == 1


def test_a_new_start_time_is_another_attempt_also_where_the_wait_was_not_seen(beside: Beside) -> None:
    beside.look(FakeJob(1, "RUNNING", "n1", started=10))
    beside.look(FakeJob(1, "RUNNING", "n2", started=50))
    assert spans(beside, "train-1") == [(30, 50, "requeue"), (50, None, None)]


def test_elements_keep_their_names_when_they_begin(beside: Beside) -> None:
    """Waiting elements are one record; one that runs has a number of its own, and the array's beside it."""
    beside.look(FakeJob(2, array="0-2", array_of=2, name="sweep", gpus=1))
    assert sorted(beside.on_disk()) == ["sweep-2-0", "sweep-2-1", "sweep-2-2"]
    found = beside.look(
        FakeJob(2, array="1-2", array_of=2, name="sweep", gpus=1),
        FakeJob(3, "RUNNING", "n1", array_of=2, element=0, name="sweep", gpus=1, started=50),
    )
    assert sorted(beside.on_disk()) == ["sweep-2-0", "sweep-2-1", "sweep-2-2"]
    assert {one.job: one.started_at is not None for one in found.starts} == {
        "sweep-2-0": True, "sweep-2-1": False, "sweep-2-2": False
    }  # fmt: skip


def test_long_names_keep_their_numbers(beside: Beside) -> None:
    beside.look(FakeJob(1234567, name="x" * 80), FakeJob(1234568, name="x" * 80))
    names = list(beside.on_disk())
    assert len(names) == 2
    assert all(len(name) <= 63 and name.endswith(("-1234567", "-1234568")) for name in names)


def test_nodes_that_give_other_numbers_of_gpus_are_groups_of_their_own(beside: Beside) -> None:
    uneven = FakeJob(
        1, "RUNNING", "n[1-2]", gpus=5, started=1, more={"gres_detail": ["gpu:h100:4(IDX:0-3)", "gpu:h100:1(IDX:2)"]}
    )
    beside.look(uneven)
    snapshot = beside.runner.status.last.snapshot  # type: ignore[union-attr]
    assert [(group.name, group.shape.gpus) for group in snapshot.jobs[0].spec.task_groups] == [
        ("worker-1", 1),
        ("worker-4", 4),
    ]
    assert sorted(sum((task.devices for task in snapshot.jobs[0].placement), ())) == [
        "n1-0",
        "n1-1",
        "n1-2",
        "n1-3",
        "n2-2",
    ]
