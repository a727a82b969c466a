"""A gang with a launcher is judged by it alone, from when it has begun: pure, from reports to settlements."""

from __future__ import annotations

import pytest

from reconciler.lifecycle.jobs.backend_reports import AttemptReport, BackendReports
from reconciler.lifecycle.jobs.decisions import settlements
from reconciler.lifecycle.jobs.evidence import tails_of
from reconciler.lifecycle.jobs.settlements import (
    AskToStop,
    ConfirmRunning,
    Fail,
    ForgetAttempt,
    GiveBack,
    Retry,
    Send,
    Settlement,
    Succeed,
)
from reconciler.model.job_record import JobRecord
from reconciler.protocols.backend import TaskState, TaskStatus
from reconciler.protocols.ledger import Claim
from solver.model.cluster import NodeName
from solver.model.inflight import Intent
from solver.model.quantities import Duration, Instant
from solver.model.shape import Shape
from solver.model.workload import JobName, JobSpec, QueueName, TaskGroup, TaskPlacement

NOW = Instant.parse("2026-03-01T12:00:00Z")
JOB = JobName("mpi")
GROUPS = (TaskGroup("launcher", 1, Shape(), ("mpirun",), launcher=True), TaskGroup("worker", 2, Shape()))
RECORD = JobRecord(JOB, JobSpec(QueueName("q"), GROUPS), "ada", NOW)
PLACES = (("launcher", 0), ("worker", 0), ("worker", 1))
TASKS = tuple(TaskPlacement(group, index, NodeName("n")) for group, index in PLACES)
END = (GiveBack(JOB, 1), ForgetAttempt(JOB, 1))
CODES = {"succeeded": 0, "failed": 3}


def statuses(*states: TaskState) -> tuple[TaskStatus, ...]:
    """The launcher's, then the workers', each a moment after the one before."""
    return tuple(
        TaskStatus(JOB, 1, *place, NodeName("n"), state, NOW.after(at), CODES.get(state))
        for at, (place, state) in enumerate(zip(PLACES, states, strict=True))
    )


def settled(*states: TaskState, stopping: bool = False, stopped: bool = False) -> tuple[Settlement, ...]:
    running = states[0] != "starting"
    claim = Claim(JOB, 1, TASKS, NOW, NOW if running else None)
    stop = Intent("stop", JOB, 1, NOW.after(5), NOW.after(30_000), TASKS)
    sighted = BackendReports({}, {(JOB, 1): AttemptReport(statuses(*states), stopped)})
    return tuple(settlements([RECORD], [claim], [stop] if stopping else [], sighted, NOW.after(6)))


def test_it_runs_once_its_launcher_does() -> None:
    assert settled("starting", "running", "running") == ()
    claim = Claim(JOB, 1, TASKS, NOW)
    sighted = BackendReports({}, {(JOB, 1): AttemptReport(statuses("running", "running", "running"))})
    (confirmed,) = settlements([RECORD], [claim], [], sighted, NOW)
    assert isinstance(confirmed, ConfirmRunning)


def test_when_its_launcher_has_ended_the_others_are_stopped() -> None:
    (asked,) = settled("succeeded", "running", "running")
    assert asked == AskToStop(JOB, 1, "its launcher has ended with exit code 0")
    (asked,) = settled("failed", "running", "running")
    assert isinstance(asked, AskToStop)
    assert "task launcher/0 on n failed with exit code 3" in asked.cause


@pytest.mark.parametrize("others", ["stopped", "failed", "succeeded", "lost"])
def test_then_it_has_ended_as_its_launcher_did(others: TaskState) -> None:
    ended = settled("succeeded", others, others, stopping=True, stopped=True)
    assert ended == (Succeed(JOB, "launcher"), *END)


def test_the_exit_code_is_the_launchers() -> None:
    fail, *rest = settled("failed", "stopped", "failed", stopping=True, stopped=True)
    assert isinstance(fail, Fail)
    assert (fail.culprit.group, fail.culprit.exit_code, tuple(rest)) == ("launcher", 3, END)


@pytest.mark.parametrize("how", ["failed", "succeeded", "stopped"])
def test_how_another_task_ends_is_for_the_launcher_to_notice(how: TaskState) -> None:
    assert settled("running", how, "running") == ()


def test_one_that_is_lost_is_the_machines_fault_and_ends_the_attempt() -> None:
    (asked,) = settled("running", "lost", "running")
    assert isinstance(asked, AskToStop)
    retried, *_ = settled("stopped", "lost", "stopped", stopping=True, stopped=True)
    assert isinstance(retried, Retry)
    assert (retried.failure.kind, retried.failure.counts) == ("node", False)


def test_until_the_launcher_begins_every_task_counts() -> None:
    (asked,) = settled("starting", "failed", "running")
    assert isinstance(asked, AskToStop)
    fail, *_ = settled("stopped", "failed", "stopped", stopping=True, stopped=True)
    assert not isinstance(fail, Succeed | Send)


def test_the_log_that_is_judged_by_is_the_launchers() -> None:
    class Logs:
        def read_log(self, job: JobName, attempt: int, group: str, index: int, offset: int, limit: int) -> bytes:
            return group.encode()[offset : offset + limit]

    claim = Claim(JOB, 1, TASKS, NOW, NOW.after(-Duration(1)))
    for states, expected in (
        (("failed", "failed", "running"), {(JOB, 1): "launcher"}),
        (("running", "failed", "running"), {}),
        (("starting", "failed", "running"), {(JOB, 1): "worker"}),
    ):
        sighted = BackendReports({}, {(JOB, 1): AttemptReport(statuses(*states))})  # type: ignore[arg-type]
        assert tails_of(iter([RECORD]), [claim], sighted, Logs()) == expected
