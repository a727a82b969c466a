"""Names of arrays and pipelines are used again once all of what is called so has ended; jobs share their space of names."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from reconciler.model.expansion import expand_array
from reconciler.model.job_groups import Batch, NewGroup, NewJob, Submission
from reconciler.model.job_record import ArrayElement, JobOutcome
from reconciler.model.job_runs import called, numbered
from reconciler.model.pipelines import NamedPipeline, PipelineJob, PipelineSpec, expand_pipeline
from reconciler.protocols.job_source import AcceptedJob, DuplicateJobError, JobQuery, PassedNumberError, UnknownJobError
from solver.model.workload import Dependency, JobArray, JobName, QueueName
from tests.contracts.stores import NOW, SPEC, Stores, lead

DONE = JobOutcome("succeeded", NOW.after(60_000), 0, "all tasks ended well")
SWEEP, NIGHTLY = JobName("sweep"), JobName("nightly")
ELEMENTS = msgspec.structs.replace(SPEC, array=JobArray("0-1"))
STAGES = PipelineSpec(
    (
        PipelineJob(JobName("prepare"), SPEC),
        PipelineJob(JobName("fit"), ELEMENTS, (Dependency(JobName("prepare"), "afterok"),)),
    )
)


def sweep(number: int = 1) -> Batch:
    """An array of two."""
    return expand_array(numbered(SWEEP, number), ELEMENTS)


def nightly(number: int = 1) -> Batch:
    """A pipeline of a job and an array that waits for it."""
    return expand_pipeline(NamedPipeline(numbered(NIGHTLY, number), STAGES))


def accept(stores: Stores, batch: Batch, key: str = "", user: str = "ada") -> JobName:
    return stores.jobs.submit_all(batch, user, NOW, key).name


def submit(stores: Stores, name: str) -> JobName:
    return stores.jobs.submit(JobName(name), SPEC, "ada", NOW, "").name


def end(stores: Stores, *names: str) -> None:
    """These have ended."""
    stores.jobs.finish_all(lead(stores), {JobName(name): DONE for name in names})


def end_all(stores: Stores, group: str) -> None:
    end(stores, *(job.name for job in stores.jobs.members(JobName(group))))


def following(stores: Stores, batch: Batch) -> int:
    return stores.jobs.next_number([called(name) for name in batch.names])


def meant(stores: Stores, *names: str) -> list[str]:
    asked = [JobName(name) for name in names]
    found = stores.jobs.resolved(asked)
    return [found[name] for name in asked]


def test_each_array_has_its_own_ids_and_its_names_mean_the_newest(stores: Stores) -> None:
    for number in (1, 2, 3):
        assert following(stores, sweep()) == number
        assert accept(stores, sweep(number)) == numbered(SWEEP, number)
        end_all(stores, numbered(SWEEP, number))
    stores.reopen()
    assert [job.name for job in stores.jobs.members(JobName("sweep#2"))] == ["sweep#2-0", "sweep#2-1"]
    assert stores.jobs.job(JobName("sweep#2-1")).array == ArrayElement(JobName("sweep#2"), 1, 2)
    assert meant(stores, "sweep", "sweep#1", "sweep-1", "sweep#1-1", "sweep#2-1", "nobody") == [
        "sweep#3", "sweep", "sweep#3-1", "sweep-1", "sweep#2-1", "nobody"
    ]  # fmt: skip
    found = stores.jobs.jobs(query=JobQuery(called="sweep-1"))
    assert [job.name for job in found] == ["sweep#3-1", "sweep#2-1", "sweep-1"]
    assert stores.jobs.newest_group(SWEEP, None, "") == stores.jobs.group(JobName("sweep#3"))


def test_what_belongs_to_a_pipeline_says_so_by_its_id(stores: Stores) -> None:
    for number in (1, 2):
        accept(stores, nightly(number), key=f"key-{number}")
        end_all(stores, numbered(NIGHTLY, number))
    second = stores.jobs.members(JobName("nightly#2"))
    assert [job.name for job in second] == ["nightly#2-prepare", "nightly#2-fit-0", "nightly#2-fit-1"]
    assert {job.pipeline for job in second} == {job.spec.env["QUORATE_PIPELINE"] for job in second} == {"nightly#2"}
    assert {job.array.id for job in second if job.array} == {"nightly#2-fit"}
    assert {job.spec.env.get("QUORATE_ARRAY_ID") for job in second} == {None, "nightly#2-fit"}
    assert [job.spec.depends_on for job in second[1:]] == [(Dependency(JobName("nightly#2-prepare"), "afterok"),)] * 2
    assert stores.jobs.group(JobName("nightly#2-fit")).pipeline == "nightly#2"
    assert meant(stores, "nightly-fit", "nightly-fit-1") == ["nightly#2-fit", "nightly#2-fit-1"]
    assert set(stores.jobs.tallies([JobName(f"nightly{number}-fit") for number in ("", "#2")])) == {
        "nightly-fit", "nightly#2-fit"
    }  # fmt: skip


@pytest.mark.parametrize("ended", [(), ("sweep-0",)])
def test_a_name_is_not_free_before_all_of_its_group_has_ended(stores: Stores, ended: tuple[str, ...]) -> None:
    accept(stores, sweep())
    end(stores, *ended)
    stores.jobs.request_cancel_all(SWEEP, "ada")
    for batch in (sweep(), sweep(2)):
        with pytest.raises(DuplicateJobError, match="an array sweep exists already, and has not ended whole"):
            accept(stores, batch)
    with pytest.raises(DuplicateJobError, match="an array sweep exists already, and has not ended whole"):
        submit(stores, "sweep")
    assert [job.name for job in stores.jobs.jobs()] == ["sweep-1", "sweep-0"]
    with pytest.raises(UnknownJobError):
        stores.jobs.group(JobName("sweep#2"))


def test_a_job_an_array_and_a_pipeline_follow_each_other_under_one_name(stores: Stores) -> None:
    submit(stores, "sweep")
    with pytest.raises(DuplicateJobError, match="a job sweep exists already, and has not ended"):
        accept(stores, sweep(2))
    end(stores, "sweep")
    assert accept(stores, sweep(2)) == "sweep#2"
    end_all(stores, "sweep#2")
    assert submit(stores, "sweep") == "sweep#3"
    end(stores, "sweep#3")
    assert accept(stores, expand_pipeline(NamedPipeline(JobName("sweep#4"), STAGES))) == "sweep#4"
    assert meant(stores, "sweep", "sweep-fit", "sweep-0") == ["sweep#4", "sweep#4-fit", "sweep#2-0"]
    assert set(stores.jobs.tallies([JobName(f"sweep{number}") for number in ("", "#2", "#3", "#4")]).values()) == {
        *(stores.jobs.tallies([JobName(name)])[JobName(name)] for name in ("sweep", "sweep#2", "sweep#4"))
    }


def test_a_group_and_a_job_named_like_its_element_never_share_an_id(stores: Stores) -> None:
    """A group takes one number for all of its names, the next that none of them has had."""
    accept(stores, sweep())
    end_all(stores, "sweep")
    assert submit(stores, "sweep-1") == "sweep-1#2"
    with pytest.raises(DuplicateJobError, match="a job sweep-1 exists already"):
        accept(stores, sweep(2))
    end(stores, "sweep-1#2")
    assert following(stores, sweep()) == 3
    with pytest.raises(PassedNumberError, match="number 3"):
        accept(stores, sweep(2))
    assert accept(stores, sweep(3)) == "sweep#3"
    with pytest.raises(DuplicateJobError, match="a job sweep-1 exists already"):
        submit(stores, "sweep-1")
    end_all(stores, "sweep#3")
    assert submit(stores, "sweep-1") == "sweep-1#4"
    assert meant(stores, "sweep", "sweep-0", "sweep-1") == ["sweep#3", "sweep#3-0", "sweep-1#4"]
    assert [job.name for job in stores.jobs.members(JobName("sweep#3"))] == ["sweep#3-0", "sweep#3-1"]


def test_a_job_had_the_name_of_an_element_before_there_was_an_array(stores: Stores) -> None:
    submit(stores, "sweep-0")
    end(stores, "sweep-0")
    assert following(stores, sweep()) == 2
    with pytest.raises(PassedNumberError):
        accept(stores, sweep())
    assert stores.jobs.newest_group(SWEEP, None, "") is None
    assert accept(stores, sweep(2)) == "sweep#2"


def test_a_number_that_is_too_high_is_refused_like_one_that_was_passed(stores: Stores) -> None:
    with pytest.raises(PassedNumberError, match="number 1"):
        accept(stores, sweep(2))
    assert stores.jobs.jobs() == ()


def test_a_retry_is_the_group_that_it_was_whatever_was_called_so_since(stores: Stores) -> None:
    assert accept(stores, sweep(), "one") == "sweep"
    # Whoever repeats it may have found the name used.
    assert accept(stores, sweep(2), "one", "bob") == "sweep"
    end_all(stores, "sweep")
    assert accept(stores, sweep(2), "two") == "sweep#2"
    for number in (1, 2, 3):
        assert (accept(stores, sweep(number), "one"), accept(stores, sweep(number), "two")) == ("sweep", "sweep#2")
    assert len(stores.jobs.jobs()) == 4


def test_of_many_at_once_one_gets_the_name_whole(stores: Stores) -> None:
    accept(stores, sweep())
    end_all(stores, "sweep")

    def array(number: int) -> str:
        try:
            return accept(stores, sweep(2), f"key-{number}")
        except DuplicateJobError:
            return ""

    def alone(number: int) -> str:
        (became,) = stores.jobs.submit_each([Submission(SWEEP, SPEC, "ada", NOW, f"alone-{number}")])
        return became.record.name if isinstance(became, AcceptedJob) else ""

    with ThreadPoolExecutor(6) as several:
        found = [*several.map(array, range(3)), *several.map(alone, range(3))]
    assert sorted(found) == ["", "", "", "", "", "sweep#2"]
    alive = {job.name for job in stores.jobs.live_jobs()}
    assert alive in ({"sweep#2"}, {"sweep#2-0", "sweep#2-1"})


def test_the_newest_group_is_of_those_that_may_be_seen(stores: Stores) -> None:
    queues = {"ada": "left", "bob": "right"}
    for number, (user, queue) in enumerate(queues.items(), 1):
        spec = msgspec.structs.replace(SPEC, queue=QueueName(queue), array=JobArray("0-1"))
        accept(stores, expand_array(numbered(SWEEP, number), spec), user=user)
        end_all(stores, numbered(SWEEP, number))

    def seen(queues: set[str] | None, user: str = "") -> str:
        found = stores.jobs.newest_group(SWEEP, None if queues is None else frozenset(map(QueueName, queues)), user)
        return found.name if found else ""

    assert [seen(None), seen({"left", "right"}), seen({"right"}), seen({"left"}), seen(set())] == [
        "sweep#2", "sweep#2", "sweep#2", "sweep", ""
    ]  # fmt: skip
    assert [seen(set(), "ada"), seen(set(), "bob"), seen({"left"}, "bob"), seen(set(), "eve")] == [
        "sweep", "sweep#2", "sweep#2", ""
    ]  # fmt: skip


def test_a_pipeline_of_which_one_job_is_hidden_is_not_seen(stores: Stores) -> None:
    hidden = msgspec.structs.replace(SPEC, queue=QueueName("hidden"))
    jobs = (NewJob(JobName("p-a"), SPEC, pipeline="p"), NewJob(JobName("p-b"), hidden, pipeline="p"))
    accept(stores, Batch((NewGroup(JobName("p"), "pipeline"),), jobs))
    assert stores.jobs.newest_group(JobName("p"), frozenset({SPEC.queue}), "") is None
    assert stores.jobs.newest_group(JobName("p"), frozenset({SPEC.queue, QueueName("hidden")}), "") is not None
