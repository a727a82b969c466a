"""Ids of jobs that are called the same."""

from __future__ import annotations

import pytest

from reconciler.model.checkpoint_policy import CheckpointPolicy
from reconciler.model.job_runs import as_id, called, number_of, numbered, run_of
from solver.model.workload import JobName


@pytest.mark.parametrize(
    ("job", "name", "number"),
    [
        ("train", "train", 1),
        ("train#2", "train", 2),
        ("a-1#99", "a-1", 99),
        ("sweep-7", "sweep-7", 1),
        ("sweep#2-7", "sweep-7", 2),
        ("nightly#12-sweep-0", "nightly-sweep-0", 12),
    ],
)
def test_an_id_says_what_it_is_called_and_for_which_time(job: str, name: str, number: int) -> None:
    assert run_of(JobName(job)) == (called(JobName(job)), number_of(JobName(job))) == (name, number)
    assert as_id(JobName(job)) == (None if number == 1 else job)


@pytest.mark.parametrize(("written", "job"), [("train#1", "train"), ("sweep#1-7", "sweep-7"), ("a-b#1-c-0", "a-b-c-0")])
def test_the_first_of_a_name_is_written_with_its_number(written: str, job: str) -> None:
    assert as_id(JobName(written)) == job


def test_a_number_makes_an_id_of_a_name() -> None:
    assert [numbered(JobName("train"), number) for number in (1, 2, 10)] == ["train", "train#2", "train#10"]


@pytest.mark.parametrize("written", ["train#", "train#0", "train#02", "#2", "a#1#2", "a#2-", "a#2-b#3", "a#2b"])
def test_what_is_no_id_is_a_name_that_nobody_has(written: str) -> None:
    assert as_id(JobName(written)) is None


def test_readers_of_urls_would_cut_the_folder_of_checkpoints() -> None:
    policy = CheckpointPolicy("disk", "s3://bucket/saved/")
    assert [policy.folder_of(job) for job in ("train", "train#2", "sweep#2-7", "sweep-7#2")] == [
        "s3://bucket/saved/train",
        "s3://bucket/saved/train.2",
        "s3://bucket/saved/sweep.2-7",
        "s3://bucket/saved/sweep-7.2",
    ]
