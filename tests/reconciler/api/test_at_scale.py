"""What is asked of one job, or of a page of them, is answered by reading those, however many others there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import msgspec
import pytest
from sqlalchemy import event

from reconciler.api.authorisation import Authorisation
from reconciler.api.job_routes import JobRoutes, _Sent
from reconciler.client import Client
from reconciler.control.queue_use import LatestQueueUses, QueueUses, queue_uses
from reconciler.model.job_groups import Batch, NewGroup, NewJob, Submission
from reconciler.model.job_record import ArrayElement, JobOutcome
from reconciler.model.problem import InvalidDocumentsError
from reconciler.protocols.history import Event
from reconciler.protocols.job_source import DuplicateJobError
from reconciler.store.jobs import SqlJobSource
from reconciler.store.ledger import SqlLedger
from solver.model.document import API_VERSION, encode
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import JobName, TaskPlacement
from solver.round.solve import standing
from tests.contracts.simulated_worlds import NODES
from tests.reconciler.api.conftest import NOW, POLICY, Site, spec
from tests.reconciler.api.people import request_of

ASKED: dict[str, Callable[[Client], object]] = {
    "a job that runs": lambda client: client.job("job-00"),
    "a job that waits": lambda client: client.job("job-05"),
    "a page of jobs": lambda client: client.jobs(limit=3),
    "submit": lambda client: client.submit(JobName("new"), spec()),
    "cancel": lambda client: client.cancel("job-01"),
    "suspend": lambda client: client.suspend("job-06"),
    "requeue": lambda client: client.requeue("job-02"),
    "events": lambda client: client.events("job-00"),
}


@pytest.fixture
def crowded(site: Site) -> Site:
    """Four run, the others wait."""
    for number in range(12):
        site.store.jobs.submit(JobName(f"job-{number:02d}"), spec(), "alice", NOW, "")
    for number, gpu in enumerate(NODES[0].gpus):
        site.bind(f"job-{number:02d}", TaskPlacement("worker", 0, NODES[0].name, (gpu.id,)))
    return site


@pytest.mark.parametrize("asked", ASKED)
def test_neither_all_jobs_nor_all_claims_are_read(
    crowded: Site, client: Client, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    """With 10,000 that run and 20,000 that wait each submission took a quarter of a second, which was spent on others."""
    whole: list[str] = []
    for owner, name in ((SqlJobSource, "live_jobs"), (SqlLedger, "claims"), (SqlLedger, "attempts")):
        monkeypatch.setattr(owner, name, lambda *_, name=name: whole.append(name))
    ASKED[asked](client)
    assert not whole


def test_a_page_says_of_each_job_what_is_said_of_it_alone(crowded: Site, client: Client) -> None:
    crowded.store.jobs.finish(crowded.epoch(), JobName("job-03"), JobOutcome("failed", NOW))
    page = client.jobs(limit=100).items
    assert [job.state for job in page[-5:]] == ["queued", "failed", "starting", "starting", "starting"]
    assert list(page) == [client.job(job.name) for job in page]
    assert client.status().live_jobs == {"queued": 8, "starting": 3}
    assert [line.name for line in client.top().items] == ["job-00", "job-01", "job-02"]


@pytest.mark.parametrize("asked", ["job", "jobs", "an array that takes turns"])
def test_a_job_that_ends_while_it_is_looked_at_is_not_said_to_wait(
    crowded: Site, client: Client, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    """Its record is read before what it holds: whoever ended in between had an old record, and held nothing any more."""
    if asked == "an array that takes turns":
        turns = ArrayElement(JobName("turns"), 0, 1, max_running=1)
        batch = Batch((NewGroup(turns.id, "array"),), (NewJob(JobName("turns-0"), spec(), turns),))
        crowded.store.jobs.submit_all(batch, "alice", NOW, "")
    ended, read = JobName("job-02"), SqlLedger.claims if asked.startswith("an array") else SqlLedger.of

    def once_it_ended(ledger: SqlLedger, *of: object) -> object:
        epoch = crowded.epoch()
        crowded.store.jobs.finish(epoch, ended, JobOutcome("succeeded", NOW, attempt=1))
        crowded.store.ledger.release(epoch, ended, 1, NOW)
        return read(ledger, *of)  # type: ignore[arg-type]

    monkeypatch.setattr(SqlLedger, read.__name__, once_it_ended)
    seen = client.job(ended) if asked == "job" else next(job for job in client.jobs().items if job.name == ended)
    assert (seen.state, seen.attempt) == ("succeeded", 1)


def test_of_many_events_the_jobs_are_read_at_once(crowded: Site, client: Client) -> None:
    """A hundred may watch while thousands of jobs begin."""
    for number in range(100):
        crowded.store.history.record_event(Event(NOW, "kind", f"job-{number % 12:02d}", str(number), "loop"))
    with statements_of(crowded) as sent:
        watching = client.watch(after=0)
        assert [kept.event.cause for kept in islice(watching, 100)] == [str(number) for number in range(100)]
    assert len(sent) < 50


SOLE = 8
"""Statements for a submission that comes alone; the first of a transaction is counted, too."""


def test_submissions_that_come_together_take_as_many_statements_as_one(crowded: Site, client: Client) -> None:
    """Each was a write of its own, which waits for the disk, and the answer another dozen of statements."""
    with statements_of(crowded) as sent:
        client.submit(JobName("alone"), spec())
    assert len(sent) <= SOLE
    routes = JobRoutes(crowded.services(), Authorisation(crowded.services()))
    asked = [Submission(JobName(f"together-{number}"), spec(), "alice", NOW) for number in range(50)]
    with statements_of(crowded) as together:
        found = routes._take_in(asked)
    assert len(found) == 50
    assert len(together) <= SOLE


def test_an_array_is_taken_in_and_answered_without_reading_its_jobs(crowded: Site, client: Client) -> None:
    def statements(size: int) -> int:
        document = {
            "apiVersion": "quorate.dev/v1",
            "kind": "Job",
            "metadata": {"name": f"many-{size}"},
            "spec": {**msgspec.to_builtins(spec()), "array": {"indices": f"0-{size - 1}"}},
        }
        with statements_of(crowded) as sent:
            view = client.submit_group(encode(document))
        assert view.counts == {"queued": size}
        assert not [line for line in sent if line.startswith("SELECT") and "jobs.spec" in line]
        return len(sent)

    assert statements(400) == statements(3)


def test_a_page_reads_as_many_jobs_as_it_shows_and_one_more(crowded: Site, client: Client) -> None:
    limits: list[object] = []

    def keep(_: object, __: object, statement: str, parameters: tuple[object, ...], *___: object) -> None:
        if "FROM jobs" in statement and "LIMIT" in statement:
            limits.append(parameters[-2])

    event.listen(crowded.store.database.engine, "before_cursor_execute", keep)
    assert len(client.jobs(3).items) == 3
    assert [job.name for job in client.jobs(3, prefix="job-0", user="alice").items] == ["job-09", "job-08", "job-07"]
    event.remove(crowded.store.database.engine, "before_cursor_execute", keep)
    assert limits == [4, 4]


def test_how_many_jobs_are_in_which_state_is_counted_without_reading_them(
    crowded: Site, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SqlJobSource, "_record", None)
    monkeypatch.setattr(SqlLedger, "claims", None)
    assert client.status().live_jobs == {"queued": 8, "starting": 4}


def test_what_queues_hold_is_worked_out_once_for_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    worked: list[Snapshot] = []

    def keep(snapshot: Snapshot, *of: Any) -> Any:
        worked.append(snapshot)
        return standing(snapshot, *of)

    monkeypatch.setattr("reconciler.control.queue_use.standing", keep)
    uses, seen = LatestQueueUses(), [snapshot_of(NOW.after(number), NODES, []) for number in range(2)]
    for snapshot in (seen[0], seen[0], seen[1], seen[1]):
        assert [queue.name for queue, _ in uses.of(snapshot, POLICY)] == [queue.name for queue in POLICY.queues]
    assert worked == seen


def test_what_queues_hold_is_taken_from_where_the_round_was_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it is there, what was said of the pass before holds: no client waits for it."""
    seen = [snapshot_of(NOW.after(number), NODES, []) for number in range(4)]
    said = [tuple(use for _, use in queue_uses(snapshot, POLICY)) for snapshot in seen]
    said[1] = tuple(use._replace(running=7) for use in said[1])
    monkeypatch.setattr("reconciler.control.queue_use.standing", None)
    uses, awaited = LatestQueueUses(), [QueueUses() for _ in seen]
    awaited[0].set_result(said[0])
    before = uses.of(seen[0], POLICY, awaited[0])
    assert before == tuple(zip(POLICY.queues, said[0], strict=True))
    assert uses.of(seen[1], POLICY, awaited[1]) is before
    awaited[1].set_result(said[1])
    assert {use.running for _, use in uses.of(seen[1], POLICY, awaited[1])} == {7}
    monkeypatch.undo()
    awaited[2].set_result(None)
    assert tuple(use for _, use in uses.of(seen[2], POLICY, awaited[2])) == said[2]
    monkeypatch.setattr("reconciler.control.queue_use.AWAITED_S", 0)
    other = msgspec.structs.replace(POLICY)
    assert tuple(use for _, use in uses.of(seen[3], other, awaited[3])) == said[3]


@contextmanager
def statements_of(site: Site) -> Iterator[list[str]]:
    """Those that the block has the database run."""
    sent: list[str] = []

    def keep(_: object, __: object, statement: str, *___: object) -> None:
        sent.append(statement)

    event.listen(site.store.database.engine, "before_cursor_execute", keep)
    yield sent
    event.remove(site.store.database.engine, "before_cursor_execute", keep)


def test_submissions_that_come_together_are_judged_each_for_itself(crowded: Site) -> None:
    """Each was a turn of a thread of its own before it could join the others; one that is refused is none of theirs."""
    services = crowded.services()
    authority = Authorisation(services)
    routes = JobRoutes(services, authority)
    document = {"apiVersion": API_VERSION, "kind": "Job", "spec": spec()}
    sent = [
        _Sent(request_of(authority), encode({**document, "metadata": {"name": name}}), "")
        for name in ("good-1", "Not A Name", "job-00", "good-2")
    ]
    with statements_of(crowded) as together:
        found = routes._judge_and_take_in(sent)
    kinds = [type(each) for each in found]
    assert kinds == [tuple, InvalidDocumentsError, DuplicateJobError, tuple]
    assert [record.name for record, _ in (each for each in found if isinstance(each, tuple))] == ["good-1", "good-2"]
    # What is known is read with its failures.
    assert len(together) <= SOLE + 1
