"""What becomes of many jobs in one pass is not read of all of them for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import event

from reconciler.control.batches import AT_ONCE_MAX, in_turn
from reconciler.control.starts import StartExecutor
from reconciler.documents.operations import Operations
from reconciler.lifecycle.jobs.settlements import ForgetAttempt, GiveBack, RecordMarks, Send, Succeed
from reconciler.model.checkpoint_policy import CheckpointPolicy
from reconciler.protocols.backend import Epoch, Order, StopGang
from reconciler.protocols.ledger import Marks
from reconciler.store.ledger import SqlLedger
from solver.model.quantities import Duration
from solver.model.shape import Shape
from solver.model.workload import Checkpoint, JobName, JobSpec, QueueName, TaskGroup, TaskPlacement
from solver.plan.plan import Bind
from tests.contracts.simulated_worlds import NODES
from tests.drawn import first
from tests.reconciler.control.plane import START_DEADLINE, Site, site_at


@pytest.mark.parametrize("end", first(1, ["cancelled", "evicted"]))
def test_the_whole_ledger_is_read_as_often_for_one_job_as_for_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    assert readings(tmp_path / "one", monkeypatch, 1, end) == readings(tmp_path / "many", monkeypatch, 4, end)


def readings(path: Path, monkeypatch: pytest.MonkeyPatch, number: int, end: str) -> Counter[str]:
    """How often everything of a kind was read in passes in which so many jobs leave."""
    read: Counter[str] = Counter()
    with site_at(path) as site:
        names = [site.submit(f"job-{each}", ("sleep", "100h")) for each in range(number)]
        site.rest()
        for name in names:
            if end == "cancelled":
                site.store.jobs.request_cancel(name, "ada")
            else:
                site.store.jobs.request_requeue(name, 1, "ada")
        with monkeypatch.context() as counting:
            for reading in ("claims", "attempts", "intents"):
                count(counting, read, reading)
            site.passes(40)
        assert not [claim for claim in site.store.ledger.claims() if claim.attempt == 1]
    return read


def count(counting: pytest.MonkeyPatch, read: Counter[str], reading: str) -> None:
    """From here on."""
    before = getattr(SqlLedger, reading)

    def counted(ledger: SqlLedger) -> object:
        read[reading] += 1
        return before(ledger)

    counting.setattr(SqlLedger, reading, counted)


@pytest.mark.parametrize("command", [("sleep", "100h"), ("sleep", "2s"), ("fail", "1", "2s")])
def test_many_that_begin_and_end_cost_as_many_statements_as_few(tmp_path: Path, command: tuple[str, ...]) -> None:
    """Of each kind of deed there is one write for all jobs of a pass, so that a burst takes no longer than a lease lasts."""
    few, many = (statements(tmp_path / f"{number}.db", number, command) for number in (2, 40))
    assert many <= few + 2


@pytest.mark.parametrize("counted", ["past use", "checkpoints"])
def test_a_pass_reads_no_more_often_for_many_that_run_than_for_few(tmp_path: Path, counted: str) -> None:
    """Past use counts what each holds, and who has saved may have something to be read again: once for all of them."""
    few, many = (of_an_idle_pass(tmp_path / f"{number}.db", number, counted) for number in (2, 30))
    assert many == few


def of_an_idle_pass(path: Path, number: int, counted: str) -> int:
    """How many statements one takes while so many jobs run."""
    with site_at(path) as site:
        scheduling = site.policy.scheduling
        if counted == "past use":
            scheduling = msgspec.structs.replace(scheduling, usage_half_life=Duration(86_400_000))
        site.policy = msgspec.structs.replace(site.policy, scheduling=scheduling)
        site.operations = Operations(checkpoints=(CheckpointPolicy("default", path.parent.as_uri()),))
        checkpoint = Checkpoint(Duration(60_000)) if counted == "checkpoints" else None
        for each in range(number):
            spec = JobSpec(
                QueueName("q"), (TaskGroup("worker", 1, Shape()),), checkpoint=checkpoint, command=("busy", "forever")
            )
            site.store.jobs.submit(JobName(f"job-{each:02d}"), spec, "ada", site.clock.now(), "")
        for _ in range(4):
            site.one_pass(after_s=60)
        assert len([claim for claim in site.store.ledger.claims() if claim.running_since]) == number
        with counting(site) as sent:
            assert site.one_pass().idle
    return len(sent)


@contextmanager
def counting(site: Site) -> Iterator[list[str]]:
    """The statements that are sent to the database within the block; what a driver runs for many rows is one."""
    sent: list[str] = []

    def keep(_: object, __: object, statement: str, *___: object) -> None:
        sent.append(statement)

    event.listen(site.store.database.engine, "before_cursor_execute", keep)
    yield sent
    event.remove(site.store.database.engine, "before_cursor_execute", keep)


def statements(path: Path, number: int, command: tuple[str, ...]) -> int:
    """Those of four passes in which so many jobs begin and, by their command, end."""
    with site_at(path) as site:
        for each in range(number):
            site.submit(f"job-{each:02d}", command, gpus=0)
        with counting(site) as sent:
            for _ in range(4):
                site.one_pass(after_s=60)
        states = {site.state(f"job-{each:02d}") for each in range(number)}
        assert states == {{"100h": "running", "1": "failed"}.get(command[1], "succeeded")}
    return len(sent)


def test_starts_are_on_record_before_the_backend_is_told_of_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed on the way, a leader leaves claims that the next one makes true, and nothing that runs without one."""
    with site_at(tmp_path / "quorate.db") as site:
        names = [site.submit(f"job-{each}", ("sleep", "100h")) for each in range(3)]
        submit = site.backend.submit

        def claimed_first(order: Order, epoch: Epoch) -> None:
            assert {claim.job for claim in site.store.ledger.claims()} == set(names)
            assert site.events(order.job)[-1] == "bound"
            submit(order, epoch)

        monkeypatch.setattr(site.backend, "submit", claimed_first)
        site.one_pass()
        assert [site.events(name)[-1] for name in names] == ["bound"] * 3


def test_of_gangs_bound_at_once_those_that_may_not_be_are_left_out(site: Site) -> None:
    """A plan that was made before somebody suspended a job, or gave its device away, begins the others all the same."""
    fine, suspended, late, orphan = (JobName(name) for name in ("fine", "suspended", "late", "orphan"))
    for name in (fine, suspended, late):
        site.submit(name, ("sleep", "100h"))
    site.store.jobs.submit(orphan, site.store.jobs.job(fine).spec, "ada", site.clock.now(), "")
    gpu, other = (gpu.id for gpu in NODES[0].gpus[:2])
    site.store.jobs.request_suspend(suspended, "ada")
    wanted = {fine: gpu, suspended: other, late: gpu, orphan: other}
    binds = tuple(
        Bind(name, 1, (TaskPlacement("worker", 0, NODES[0].name, (device,)),), START_DEADLINE)
        for name, device in wanted.items()
    )
    plane = site.plane("only")
    epoch = plane.ledger.lead("only", site.clock.now(), plane.lease)
    assert StartExecutor(plane, epoch).bind(binds, ()) == 2
    assert [claim.job for claim in site.store.ledger.claims()] == [fine, orphan]
    said = [told for name in (suspended, late) for told in site.store.history.events(name)]
    assert [(told.kind, told.cause) for told in said] == [
        ("bind-refused", "suspended was suspended by ada"),
        ("bind-refused", f"already held: {gpu} by fine"),
    ]


def test_what_is_made_true_at_once_keeps_the_order_of_each_job() -> None:
    """A job is finished before its devices are free, and forgotten last; where that is decided otherwise it is done otherwise."""
    a, b = JobName("a"), JobName("b")
    end_a, free_a, forget_a = Succeed(a), GiveBack(a, 1), ForgetAttempt(a, 1)
    end_b, note_b = Succeed(b), RecordMarks(b, 1, Marks())
    assert list(in_turn([end_a, free_a, forget_a, end_b])) == [(end_a, free_a, forget_a, end_b)]
    assert list(in_turn([free_a, end_a, forget_a])) == [(free_a,), (end_a, forget_a)]
    assert list(in_turn([end_a, note_b, free_a])) == [(end_a,), note_b, (free_a,)]
    send_b = Send(StopGang(b, 1, Duration(0)))
    assert list(in_turn([end_a, free_a, send_b, end_b, send_b])) == [(end_a, free_a, send_b, end_b, send_b)]
    many = [GiveBack(JobName(f"job-{number}"), 1) for number in range(AT_ONCE_MAX + 1)]
    assert [len(each) for each in in_turn(many) if isinstance(each, tuple)] == [AT_ONCE_MAX, 1]
