"""Every job source takes arrays and pipelines whole or not at all; see reconciler/protocols/job_source.py."""

from __future__ import annotations

import msgspec
import pytest

from reconciler.model.job_groups import Batch, GroupRecord, NewGroup, NewJob, Tally
from reconciler.model.job_record import ArrayElement, JobOutcome
from reconciler.protocols.job_source import DuplicateJobError, JobQuery, UnknownJobError
from solver.model.workload import Dependency, JobName
from tests.contracts.stores import NOW, SPEC, Stores, lead, submit

SWEEP = JobName("run-sweep")


def element(index: int) -> NewJob:
    return NewJob(JobName(f"run-sweep-{index}"), SPEC, ArrayElement(SWEEP, index, 2, 1), "run")


AFTER = msgspec.structs.replace(SPEC, depends_on=(Dependency(SWEEP, "afterany"),))
RUN = Batch(
    (NewGroup(JobName("run"), "pipeline"), NewGroup(SWEEP, "array", "run")),
    (element(3), element(1), NewJob(JobName("run-end"), AFTER, pipeline="run")),
)


def accept(stores: Stores, batch: Batch = RUN, key: str = "key") -> GroupRecord:
    return stores.jobs.submit_all(batch, "ada", NOW, key)


def test_a_batch_is_read_back_as_it_was_submitted(stores: Stores) -> None:
    accepted = accept(stores)
    stores.reopen()
    assert stores.jobs.group(JobName("run")) == accepted == GroupRecord(JobName("run"), "pipeline", "ada", NOW)
    assert stores.jobs.group(SWEEP) == GroupRecord(SWEEP, "array", "ada", NOW, "run")
    found = [(job.name, job.spec, job.array, job.pipeline) for job in stores.jobs.members(JobName("run"))]
    assert found == [(job.name, job.spec, job.array, job.pipeline) for job in RUN.jobs]
    assert [job.name for job in stores.jobs.members(SWEEP)] == ["run-sweep-3", "run-sweep-1"]
    assert stores.jobs.job(JobName("run-end")).user == "ada"


def test_the_same_key_again_changes_nothing(stores: Stores) -> None:
    first = accept(stores)
    again = stores.jobs.submit_all(RUN, "bob", NOW.after(5), "key")
    assert again == first
    assert len(stores.jobs.jobs()) == 3
    assert [stores.jobs.was_submitted(RUN.name, key) for key in ("key", "other", "")] == [True, False, False]


@pytest.mark.parametrize(("first", "second"), [("key", "other"), ("", "")])
def test_a_batch_is_taken_once(stores: Stores, first: str, second: str) -> None:
    accept(stores, key=first)
    with pytest.raises(DuplicateJobError):
        accept(stores, key=second)


@pytest.mark.parametrize("name", ["run", "run-sweep", "run-sweep-1", "run-end"])
def test_nothing_of_a_batch_is_kept_where_one_name_is_taken(stores: Stores, name: str) -> None:
    submit(stores, name)
    with pytest.raises(DuplicateJobError, match=name):
        accept(stores)
    assert [job.name for job in stores.jobs.jobs()] == [name]
    with pytest.raises(UnknownJobError):
        stores.jobs.group(JobName("run"))


@pytest.mark.parametrize("name", ["run", "run-sweep"])
def test_no_job_takes_the_name_of_a_group(stores: Stores, name: str) -> None:
    accept(stores)
    with pytest.raises(DuplicateJobError, match=name):
        submit(stores, name)


def test_jobs_are_counted_under_every_name_they_go_by(stores: Stores) -> None:
    accept(stores)
    epoch = lead(stores)
    for name, state in (("run-sweep-1", "succeeded"), ("run-sweep-3", "failed")):
        outcome = JobOutcome("succeeded", NOW) if state == "succeeded" else JobOutcome("failed", NOW, 1)
        stores.jobs.finish(epoch, JobName(name), outcome)
    names = [JobName(name) for name in ("run", "run-sweep", "run-sweep-1", "run-end", "nobody")]
    assert stores.jobs.tallies(names) == {
        "run": Tally(live=1, succeeded=1, failed=1),
        "run-sweep": Tally(succeeded=1, failed=1),
        "run-sweep-1": Tally(succeeded=1),
        "run-end": Tally(live=1),
    }
    assert stores.jobs.tallies([]) == {}


def test_more_names_than_a_statement_takes_are_counted(stores: Stores) -> None:
    jobs = tuple(
        NewJob(JobName(f"big-{index}"), SPEC, ArrayElement(JobName("big"), index, 1201)) for index in range(1201)
    )
    accept(stores, Batch((NewGroup(JobName("big"), "array"),), jobs))
    assert stores.jobs.tallies([job.name for job in jobs]) == {job.name: Tally(live=1) for job in jobs}


def test_a_group_is_cancelled_as_a_whole(stores: Stores) -> None:
    accept(stores)
    epoch = lead(stores)
    stores.jobs.finish(epoch, JobName("run-sweep-3"), JobOutcome("succeeded", NOW))
    stores.jobs.request_cancel(JobName("run-sweep-1"), "bob")
    stores.jobs.request_cancel_all(JobName("run"), "ada")
    assert {job.name: job.cancel_requested_by for job in stores.jobs.jobs()} == {
        "run-sweep-3": "",
        "run-sweep-1": "bob",
        "run-end": "ada",
    }


def test_cancelling_an_array_leaves_the_rest_of_its_pipeline(stores: Stores) -> None:
    accept(stores)
    stores.jobs.request_cancel_all(SWEEP, "ada")
    assert stores.jobs.job(JobName("run-end")).cancel_requested_by == ""


def test_an_unknown_group_is_an_error(stores: Stores) -> None:
    submit(stores, "job")
    for call in (
        lambda: stores.jobs.group(JobName("job")),
        lambda: stores.jobs.members(JobName("job")),
        lambda: stores.jobs.request_cancel_all(JobName("job"), "ada"),
    ):
        with pytest.raises(UnknownJobError, match="job"):
            call()


def test_the_jobs_of_a_group_are_found_and_no_others_that_are_called_alike(stores: Stores) -> None:
    jobs = (
        *(NewJob(JobName(f"p-a-{n}"), SPEC, ArrayElement(JobName("p-a"), n, 2), JobName("p")) for n in range(2)),
        NewJob(JobName("p-b"), SPEC, pipeline=JobName("p")),
    )
    groups = NewGroup(JobName("p"), "pipeline"), NewGroup(JobName("p-a"), "array", JobName("p"))
    stores.jobs.submit_all(Batch(groups, jobs), "ada", NOW, "")
    stores.jobs.submit(JobName("p-a-more"), SPEC, "ada", NOW, "")

    def names(group: str) -> list[str]:
        return [record.name for record in stores.jobs.jobs(query=JobQuery(group=group))]

    assert names("p") == ["p-b", "p-a-1", "p-a-0"]
    assert names("p-a") == ["p-a-1", "p-a-0"]
    assert names("p-a-more") == []
    assert stores.jobs.count(JobQuery(group="p"), 10) == 3
