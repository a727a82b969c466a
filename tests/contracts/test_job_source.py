"""Every job source keeps these promises; see reconciler/protocols/job_source.py."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from reconciler.model.failure import Failure
from reconciler.model.job_groups import Batch, NewGroup, NewJob, Submission
from reconciler.model.job_record import ArrayElement, JobOutcome
from reconciler.protocols.backend import StaleEpochError
from reconciler.protocols.job_source import ALL_JOBS, AcceptedJob, DuplicateJobError, JobQuery, UnknownJobError
from reconciler.protocols.ledger import Claim
from solver.model.cluster import GpuType
from solver.model.inflight import Intent
from solver.model.shape import Shape
from solver.model.workload import JobName, JobSpec, QueueName, TaskGroup
from tests.contracts.stores import NOW, SPEC, Stores, lead, submit

DONE = JobOutcome("succeeded", NOW.after(60_000), 0, "all tasks ended well")


def test_a_job_is_read_back_as_it_was_submitted(stores: Stores) -> None:
    submitted = stores.jobs.submit(JobName("a"), SPEC, "ada", NOW, "key")
    stores.reopen()
    found = stores.jobs.job(JobName("a"))
    assert found == submitted
    assert (found.spec, found.user, found.submitted_at, found.outcome) == (SPEC, "ada", NOW, None)


def test_the_same_key_again_is_the_same_job(stores: Stores) -> None:
    first = stores.jobs.submit(JobName("a"), SPEC, "ada", NOW, "key")
    again = stores.jobs.submit(JobName("a"), JobSpec(QueueName("other"), ()), "bob", NOW.after(5), "key")
    assert again == first
    assert len(stores.jobs.jobs()) == 1
    asked = [("a", "key"), ("a", "other"), ("a", ""), ("b", "key")]
    assert [stores.jobs.was_submitted(JobName(name), key) for name, key in asked] == [True, False, False, False]


@pytest.mark.parametrize(("first", "second"), [("key", "other"), ("", "")])
def test_a_name_is_used_once_at_a_time(stores: Stores, first: str, second: str) -> None:
    stores.jobs.submit(JobName("a"), SPEC, "ada", NOW, first)
    with pytest.raises(DuplicateJobError):
        stores.jobs.submit(JobName("a"), SPEC, "ada", NOW, second)


def test_live_jobs_are_sorted_and_lack_the_ended(stores: Stores) -> None:
    for name in ("c", "a", "b"):
        submit(stores, name)
    stores.jobs.finish(lead(stores), JobName("b"), DONE)
    assert [job.name for job in stores.jobs.live_jobs()] == ["a", "c"]


def test_jobs_are_listed_newest_first(stores: Stores) -> None:
    for name in ("c", "a", "b"):
        submit(stores, name)
    stores.jobs.finish(lead(stores), JobName("c"), DONE)
    assert [job.name for job in stores.jobs.jobs()] == ["b", "a", "c"]
    assert [job.name for job in stores.jobs.jobs(limit=2)] == ["b", "a"]


def test_the_first_outcome_stays(stores: Stores) -> None:
    epoch = lead(stores)
    submit(stores, "a")
    stores.jobs.finish(epoch, JobName("a"), DONE)
    stores.jobs.finish(epoch, JobName("a"), JobOutcome("failed", NOW, 1))
    stores.reopen()
    assert stores.jobs.job(JobName("a")).outcome == DONE


def test_the_first_who_cancels_is_remembered(stores: Stores) -> None:
    submit(stores, "a")
    assert stores.jobs.request_cancel(JobName("a"), "ada").cancel_requested_by == "ada"
    assert stores.jobs.request_cancel(JobName("a"), "bob").cancel_requested_by == "ada"
    assert stores.jobs.job(JobName("a")).cancel_requested_by == "ada"


def test_cancelling_an_ended_job_changes_nothing(stores: Stores) -> None:
    stores.jobs.finish(lead(stores), submit(stores, "a"), DONE)
    record = stores.jobs.request_cancel(JobName("a"), "ada")
    assert (record.cancel_requested_by, record.outcome) == ("", DONE)


def test_an_unknown_job_is_an_error(stores: Stores) -> None:
    epoch = lead(stores)
    for call in (
        lambda: stores.jobs.job(JobName("a")),
        lambda: stores.jobs.request_cancel(JobName("a"), "ada"),
        lambda: stores.jobs.finish(epoch, JobName("a"), DONE),
    ):
        with pytest.raises(UnknownJobError, match="a"):
            call()


def test_only_the_leader_may_finish_a_job(stores: Stores) -> None:
    submit(stores, "a")
    stale = lead(stores, "first")
    lead(stores, "second", NOW.after(60_000))
    with pytest.raises(StaleEpochError):
        stores.jobs.finish(stale, JobName("a"), DONE)
    assert stores.jobs.job(JobName("a")).outcome is None


def test_jobs_submitted_before_one(stores: Stores) -> None:
    for name in ("a", "c", "b"):
        submit(stores, name)
    assert [job.name for job in stores.jobs.jobs(after=JobName("b"))] == ["c", "a"]
    assert [job.name for job in stores.jobs.jobs(limit=1, after=JobName("b"))] == ["c"]
    assert stores.jobs.jobs(after=JobName("a")) == ()
    with pytest.raises(UnknownJobError):
        stores.jobs.jobs(after=JobName("x"))


def test_the_first_who_suspends_is_remembered_until_it_is_resumed(stores: Stores) -> None:
    submit(stores, "a")
    assert stores.jobs.request_suspend(JobName("a"), "ada").suspended_by == "ada"
    assert stores.jobs.request_suspend(JobName("a"), "bob").suspended_by == "ada"
    stores.reopen()
    assert stores.jobs.job(JobName("a")).suspended_by == "ada"
    assert stores.jobs.resume(JobName("a")).suspended_by == ""
    assert stores.jobs.resume(JobName("a")).suspended_by == ""


def test_an_attempt_is_requeued_by_the_first_who_asks(stores: Stores) -> None:
    submit(stores, "a")
    asked = stores.jobs.request_requeue(JobName("a"), 2, "ada")
    assert (asked.requeue_attempt, asked.requeued_by) == (2, "ada")
    assert stores.jobs.request_requeue(JobName("a"), 2, "bob") == asked
    assert stores.jobs.request_requeue(JobName("a"), 1, "bob") == asked
    assert stores.jobs.request_requeue(JobName("a"), 3, "bob").requeued_by == "bob"


def test_nothing_is_asked_of_an_ended_job(stores: Stores) -> None:
    stores.jobs.finish(lead(stores), submit(stores, "a"), DONE)
    before = stores.jobs.job(JobName("a"))
    assert stores.jobs.request_suspend(JobName("a"), "ada") == before
    assert stores.jobs.request_requeue(JobName("a"), 1, "ada") == before


def test_the_first_failure_of_an_attempt_stays(stores: Stores) -> None:
    epoch, first = lead(stores), Failure(1, "node", NOW, NOW.after(10_000), False, None, "node n0 is gone")
    second = Failure(2, "exit", NOW.after(1), NOW.after(20_000), True, 3, "exit code 3")
    submit(stores, "a")
    submit(stores, "b")
    stores.jobs.retry(epoch, JobName("a"), first)
    stores.jobs.retry(epoch, JobName("a"), Failure(1, "exit", NOW, NOW))
    stores.jobs.retry(epoch, JobName("a"), second)
    stores.reopen()
    assert stores.jobs.job(JobName("a")).failures == (first, second)
    assert [record.failures for record in stores.jobs.live_jobs()] == [(first, second), ()]


def test_failures_of_more_jobs_than_a_query_may_name_are_found(stores: Stores) -> None:
    epoch = lead(stores)
    for number in range(510):
        submit(stores, f"job-{number:03}")
    stores.jobs.retry(epoch, JobName("job-509"), Failure(1, "exit", NOW, NOW))
    assert [record.name for record in stores.jobs.live_jobs() if record.failures] == ["job-509"]


def test_live_jobs_are_sorted_by_code_point_whatever_language_the_database_speaks(stores: Stores) -> None:
    names = ["b", "a-c", "a_b", "ab", "B", "a.b", "ä", "z", "Z", "a1", "a10", "a2"]
    for name in names:
        submit(stores, name)
    assert [record.name for record in stores.jobs.live_jobs()] == sorted(names)


def test_the_same_submission_from_many_at_once_is_one_job(stores: Stores) -> None:
    with ThreadPoolExecutor(8) as threads:
        accepted = list(threads.map(lambda _: submit(stores, "same"), range(16)))
    assert set(accepted) == {"same"}
    assert len(stores.jobs.jobs()) == 1


def test_of_many_submissions_each_is_accepted_or_refused_as_if_it_came_alone(stores: Stores) -> None:
    submit(stores, "old")
    stores.jobs.submit_all(
        Batch(
            (NewGroup(JobName("many"), "array"),),
            (NewJob(JobName("many-0"), SPEC, ArrayElement(JobName("many"), 0, 1)),),
        ),
        "ada",
        NOW,
        "",
    )
    asked = [
        Submission(JobName(name), SPEC, user, NOW, key)
        for name, user, key in (
            ("new", "ada", "k"),
            ("old", "bob", "key-of-old"),
            ("old", "bob", "another"),
            ("new", "bob", "k"),
            ("new", "bob", ""),
            ("many", "ada", "k"),
            ("many-0", "ada", "k"),
            ("last", "ada", ""),
        )
    ]
    found = stores.jobs.submit_each(asked)
    stores.reopen()
    assert [isinstance(each, DuplicateJobError) for each in found] == [
        False,
        False,
        True,
        False,
        True,
        True,
        True,
        False,
    ]
    accepted = [each for each in found if isinstance(each, AcceptedJob)]
    assert [(each.record.name, each.record.user, each.is_new) for each in accepted] == [
        ("new", "ada", True), ("old", "ada", False), ("new", "ada", False), ("last", "ada", True),
    ]  # fmt: skip
    assert [stores.jobs.job(each.record.name) for each in accepted] == [each.record for each in accepted]
    assert [record.name for record in stores.jobs.jobs()] == ["last", "new", "many-0", "old"]


def test_a_query_leaves_out_what_is_not_looked_for(stores: Stores) -> None:
    epoch = lead(stores)
    for name, queue, user in (("a1", "q", "ada"), ("a2", "r", "ada"), ("b1", "q", "bob"), ("A1", "q", "ada")):
        spec = msgspec.structs.replace(SPEC, queue=QueueName(queue))
        stores.jobs.submit(JobName(name), spec, user, NOW, "")
    stores.jobs.finish(epoch, JobName("b1"), DONE)

    def names(query: JobQuery, limit: int = 10) -> list[str]:
        return [record.name for record in stores.jobs.jobs(limit, query=query)]

    assert names(ALL_JOBS) == ["A1", "b1", "a2", "a1"]
    assert names(JobQuery(queues=frozenset({QueueName("q")}))) == ["A1", "b1", "a1"]
    assert names(JobQuery(user="ada", prefix="a")) == ["a2", "a1"]
    assert names(JobQuery(prefix="a", queues=frozenset())) == []
    assert names(JobQuery(ended=frozenset({"succeeded"}), live=False)) == ["b1"]
    assert names(JobQuery(ended=frozenset({"failed"}))) == ["A1", "a2", "a1"]
    assert names(JobQuery(queues=frozenset({QueueName("q")})), limit=2) == ["A1", "b1"]
    ended_at = next(record.outcome.at for record in stores.jobs.jobs() if record.outcome)
    assert names(JobQuery(since=ended_at)) == ["A1", "a2", "a1"]
    assert names(JobQuery(since=ended_at.after(-1))) == ["A1", "b1", "a2", "a1"]
    submitted_at = stores.jobs.job(JobName("a1")).submitted_at
    assert names(JobQuery(to=submitted_at)) == []
    assert "a1" in names(JobQuery(to=submitted_at.after(1)))


def test_jobs_are_found_and_sorted_by_what_they_ask_for(stores: Stores) -> None:
    epoch = lead(stores)
    asked = (
        ("Small-1", 1, ("A",), "low"),
        ("large-1", 8, ("A", "B"), ""),
        ("any_1", 2, (), "low"),
        ("small-2", 1, ("B",), "high"),
        ("none", 0, (), ""),
        ("over", 9, ("A",), "low"),
    )
    for name, gpus, types, priority_class in asked:
        shape = Shape(gpus=gpus, gpu_types=tuple(map(GpuType, types)))
        spec = JobSpec(QueueName("q"), (TaskGroup("w", 1, shape),), priority_class)
        stores.jobs.submit(JobName(name), spec, "ada", NOW, "")
    stores.jobs.finish(epoch, JobName("over"), DONE)

    def names(query: JobQuery, after: str | None = None) -> list[str]:
        found = stores.jobs.jobs(10, None if after is None else JobName(after), query)
        if after is None:
            assert stores.jobs.count(query, 100) == len(found)
            assert stores.jobs.count(query, 2) == min(2, len(found))
        return [record.name for record in found]

    live = JobQuery(ended=frozenset())
    assert names(live._replace(order="biggest")) == ["large-1", "any_1", "small-2", "Small-1", "none"]
    assert names(live._replace(order="biggest"), after="small-2") == ["Small-1", "none"]
    assert names(JobQuery(order="biggest"))[0] == "over"
    assert names(JobQuery(order="waiting")) == ["Small-1", "large-1", "any_1", "small-2", "none"]
    assert names(JobQuery(order="waiting"), after="any_1") == ["small-2", "none"]
    assert names(JobQuery(text="SMALL")) == ["small-2", "Small-1"]
    assert names(JobQuery(text="y_")) == ["any_1"]
    assert names(JobQuery(text="%")) == []
    assert names(JobQuery(classes=frozenset({"high", ""}))) == ["none", "small-2", "large-1"]
    assert names(live._replace(gpu_type="A")) == ["any_1", "large-1", "Small-1"]
    assert names(live._replace(gpu_type="B", text="small")) == ["small-2"]
    assert names(JobQuery(seen_in=frozenset())) == []
    assert len(names(JobQuery(seen_in=frozenset(), seen_by="ada"))) == len(asked)
    assert names(live._replace(seen_in=frozenset({QueueName("q")}), text="any")) == ["any_1"]


def test_jobs_that_hold_something_are_told_from_those_that_wait(stores: Stores) -> None:
    epoch = lead(stores)
    for name in ("holds", "waits"):
        submit(stores, name)
    claim = Claim(JobName("holds"), 1, (), NOW)
    stores.ledger.claim(epoch, claim, Intent("start", JobName("holds"), 1, NOW, NOW.after(1_000), ()))

    def names(query: JobQuery) -> list[str]:
        return [record.name for record in stores.jobs.jobs(query=query)]

    assert names(JobQuery(holds=True)) == ["holds"]
    assert names(JobQuery(holds=False)) == names(JobQuery(order="waiting")) == ["waits"]
