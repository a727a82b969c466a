"""Ids of jobs that are called the same."""

from __future__ import annotations

import pytest

from reconciler.model.checkpoint_policy import CheckpointPolicy
from reconciler.model.job_runs import as_id, called, run_after
from solver.model.workload import JobName


@pytest.mark.parametrize(
    ("job", "name", "after"), [("train", "train", "train#2"), ("train#2", "train", "train#3"), ("a-1#99", "a-1", "a-1#100")]
)  # fmt: skip
def test_ids_count_on(job: str, name: str, after: str) -> None:
    assert (called(JobName(job)), run_after(JobName(job))) == (name, after)
    assert called(run_after(JobName(job))) == name
    assert as_id(JobName(name)) is None
    assert as_id(JobName(f"{name}#1")) == name


@pytest.mark.parametrize("written", ["train#", "train#0", "train#02", "#2", "a#1#2"])
def test_what_is_no_id_is_a_name_that_nobody_has(written: str) -> None:
    assert as_id(JobName(written)) is None


def test_readers_of_urls_would_cut_the_folder_of_checkpoints() -> None:
    policy = CheckpointPolicy("disk", "s3://bucket/saved/")
    assert [policy.folder_of(job) for job in ("train", "train#2")] == [
        "s3://bucket/saved/train",
        "s3://bucket/saved/train.2",
    ]
