"""A name is used again once what is called so has ended, and nothing of one run is taken for that of another."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from reconciler.model.failure import Failure
from reconciler.model.job_groups import Submission
from reconciler.model.job_record import JobOutcome
from reconciler.protocols.history import Event
from reconciler.protocols.job_source import AcceptedJob, DuplicateJobError, JobQuery
from solver.model.workload import JobName
from tests.contracts.stores import NOW, SPEC, Stores, lead, submit

DONE = JobOutcome("succeeded", NOW.after(60_000), 0, "all tasks ended well")
TRAIN = JobName("train")


def run(stores: Stores, key: str = "") -> JobName:
    """One more job called train, which ends at once."""
    job = stores.jobs.submit(TRAIN, SPEC, "ada", NOW, key).name
    stores.jobs.finish(lead(stores), job, DONE)
    return job


def newest(stores: Stores, *names: str) -> list[str]:
    asked = [JobName(name) for name in names]
    found = stores.jobs.resolved(asked)
    return [found[name] for name in asked]


def test_ids_count_on_and_the_name_means_the_newest(stores: Stores) -> None:
    assert newest(stores, "train", "train#1", "train#2") == ["train", "train", "train#2"]
    assert [run(stores) for _ in range(3)] == ["train", "train#2", "train#3"]
    submit(stores, "training")
    stores.reopen()
    assert newest(stores, "train", "train#1", "train#2", "training", "nobody") == [
        "train#3", "train", "train#2", "training", "nobody"
    ]  # fmt: skip
    called = stores.jobs.jobs(query=JobQuery(called="train"))
    assert [job.name for job in called] == ["train#3", "train#2", "train"]
    assert stores.jobs.count(JobQuery(called="train"), 10) == 3


def test_a_name_is_not_free_before_its_newest_has_ended(stores: Stores) -> None:
    run(stores)
    second = stores.jobs.submit(TRAIN, SPEC, "ada", NOW, "second").name
    with pytest.raises(DuplicateJobError, match="has not ended"):
        stores.jobs.submit(TRAIN, SPEC, "ada", NOW, "third")
    stores.jobs.request_cancel(second, "ada")
    with pytest.raises(DuplicateJobError, match="has not ended"):
        stores.jobs.submit(TRAIN, SPEC, "ada", NOW, "")
    assert [job.name for job in stores.jobs.live_jobs()] == ["train#2"]


def test_a_retry_is_the_job_that_it_was_whatever_was_called_so_since(stores: Stores) -> None:
    assert [run(stores, key) for key in ("one", "two")] == ["train", "train#2"]
    for key, job in (("one", "train"), ("two", "train#2")):
        assert stores.jobs.submit(TRAIN, SPEC, "bob", NOW, key).name == job
    assert len(stores.jobs.jobs()) == 2


def test_several_in_one_write_are_taken_as_if_one_came_after_the_other(stores: Stores) -> None:
    run(stores, "one")
    asked = [Submission(TRAIN, SPEC, "ada", NOW, key) for key in ("two", "one", "two", "three", "")]
    found = stores.jobs.submit_each(asked)
    assert [(each.record.name, each.is_new) if isinstance(each, AcceptedJob) else "" for each in found] == [
        ("train#2", True), ("train", False), ("train#2", False), "", ""
    ]  # fmt: skip


def test_of_many_at_once_one_gets_the_name(stores: Stores) -> None:
    run(stores)

    def ask(number: int) -> str:
        try:
            return stores.jobs.submit(TRAIN, SPEC, "ada", NOW, f"key-{number}").name
        except DuplicateJobError:
            return ""

    with ThreadPoolExecutor(4) as several:
        assert sorted(several.map(ask, range(4))) == ["", "", "", "train#2"]


def test_what_happened_to_one_run_is_not_told_of_another(stores: Stores) -> None:
    epoch, first = lead(stores), run(stores)
    second = stores.jobs.submit(TRAIN, SPEC, "bob", NOW, "").name
    failure = Failure(1, "exit", NOW, NOW, exit_code=3, message="task 0 failed")
    stores.jobs.retry(epoch, second, failure)
    for job in (first, second):
        stores.history.record_event(Event(NOW, "running", job, f"of {job}", "control-plane"))
    stores.reopen()
    one, two = stores.jobs.job(first), stores.jobs.job(second)
    assert (one.outcome, one.failures, one.user) == (DONE, (), "ada")
    assert (two.outcome, two.failures, two.user) == (None, (failure,), "bob")
    assert [event.cause for event in stores.history.events(first)] == ["of train"]
    assert [event.cause for event in stores.history.events(second)] == ["of train#2"]
