"""Every store tells what there was of jobs in a window; see reconciler/protocols/past_jobs.py."""

from __future__ import annotations

from sqlalchemy import text

from reconciler.model.checkpoint_findings import WrongDigest
from reconciler.model.checkpoint_record import CheckpointRecord
from reconciler.model.job_record import JobOutcome
from reconciler.protocols.past_jobs import PastJob
from solver.model.cluster import GpuType
from solver.model.quantities import Instant, Memory, MilliGpu
from solver.model.shape import Shape
from solver.model.workload import JobName, JobSpec, QueueName, TaskGroup
from tests.contracts.stores import NOW, SqlStores, Stores, claim_of, intent_of, lead

H100, A100 = GpuType("H100"), GpuType("A100")


def spec(*types: GpuType, priority_class: str = "") -> JobSpec:
    groups = TaskGroup("w", 2, Shape(gpus=4, gpu_types=types)), TaskGroup("driver", 1, Shape())
    return JobSpec(QueueName("q"), groups, command=("true",), priority_class=priority_class)


def add(stores: Stores, name: str, at: int, ended: int | None = None, asked: JobSpec | None = None) -> None:
    stores.jobs.submit(JobName(name), asked or spec(H100), "ada", NOW.after(at), name)
    if ended is not None:
        stores.jobs.finish(lead(stores), JobName(name), JobOutcome("succeeded", NOW.after(ended)))


def names(stores: Stores, start: int, end: int) -> list[str]:
    return [job.name for job in stores.past_jobs.between(NOW.after(start), NOW.after(end))]


def test_jobs_that_were_there_at_a_moment_of_a_window(stores: Stores) -> None:
    add(stores, "before", 0, 10)
    add(stores, "over", 5, 20)
    add(stores, "within", 12, 13)
    add(stores, "lives", 0)
    add(stores, "later", 30)
    assert names(stores, 10, 30) == ["lives", "over", "within"]
    assert names(stores, 9, 31) == ["before", "later", "lives", "over", "within"]


def test_a_job_that_has_ended_and_still_holds_something_is_there(stores: Stores) -> None:
    claim = claim_of("a", "n1/0")
    add(stores, "a", 0)
    stores.ledger.claim(lead(stores), claim, intent_of(claim))
    stores.jobs.finish(lead(stores), JobName("a"), JobOutcome("succeeded", NOW.after(10)))
    assert names(stores, 20, 30) == ["a"]
    stores.ledger.release(lead(stores), JobName("a"), 1, NOW.after(25))
    assert (names(stores, 20, 30), names(stores, 25, 30)) == (["a"], [])


def test_what_a_job_is_and_asks_for(stores: Stores) -> None:
    add(stores, "a", 0, 10, spec(H100, A100, priority_class="urgent"))
    add(stores, "any", 0, None, spec())
    first, second = stores.past_jobs.between(NOW, NOW.after(100))
    eight = MilliGpu.gpus(8)
    assert first == PastJob(JobName("a"), QueueName("q"), "ada", "urgent", eight, ("A100", "H100"), NOW, NOW.after(10))
    assert second == PastJob(JobName("any"), QueueName("q"), "ada", "", eight, (), NOW, None)


def test_jobs_that_an_older_release_took_in_are_read_whole(stores: SqlStores) -> None:
    add(stores, "a", 0, None, spec(H100, priority_class="urgent"))
    new = stores.past_jobs.between(NOW, NOW.after(1))
    with stores.database.engine.begin() as connection:
        connection.execute(text("UPDATE jobs SET queue = NULL, priority_class = NULL, gpu_types = NULL, gpus = 0"))
    assert stores.past_jobs.between(NOW, NOW.after(1)) == new


def save(stores: Stores, job: str, attempt: int, step: int, at: int) -> CheckpointRecord:
    made = CheckpointRecord(JobName(job), attempt, step, "disk", "file:///x", 1, Memory(1), "sha256:x", NOW.after(at))
    stores.checkpoints.record(lead(stores), made)
    return made


def test_when_attempts_saved_last_though_what_they_saved_is_deleted(stores: Stores) -> None:
    add(stores, "a", 0)
    save(stores, "a", 1, 1, 10)
    kept = save(stores, "a", 1, 2, 20)
    bad = save(stores, "a", 1, 3, 30)
    save(stores, "a", 2, 4, 40)
    stores.checkpoints.judge(lead(stores), bad.key, (WrongDigest(),))
    stores.checkpoints.delete(lead(stores), kept.key)
    stores.checkpoints.delete(lead(stores), bad.key)

    def saved(start: int) -> dict[tuple[str, int], Instant]:
        return {(job, attempt): at for (job, attempt), at in stores.past_jobs.saved(NOW.after(start)).items()}

    assert saved(0) == {("a", 1): NOW.after(20), ("a", 2): NOW.after(40)}
    assert saved(20) == {("a", 2): NOW.after(40)}
