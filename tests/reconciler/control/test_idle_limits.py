"""Idle limits where it is known what GPUs do: an interactive job is as idle as they are, whatever its CPUs and its log say."""

from __future__ import annotations

import msgspec
import pytest

from reconciler.lifecycle.jobs.backend_reports import AttemptReport
from reconciler.lifecycle.jobs.idle_gpus import GpuStill
from reconciler.lifecycle.jobs.idleness import activity_of
from reconciler.model.gpu_use import MINUTE
from reconciler.protocols.backend import Activity, TaskStatus
from solver.model.cluster import NodeName
from solver.model.quantities import Duration, Instant
from solver.model.shape import Shape
from solver.model.workload import JobName, JobSpec, QueueName, TaskGroup, TaskPlacement
from tests.reconciler.control.plane import Site
from tests.reconciler.control.test_idle_policies import Active, Used, nothing

JOB = JobName("notebook")
LIMIT = Duration(10 * MINUTE)
IDLE, BUSY = ("sleep", "forever"), ("busy", "forever")


@pytest.fixture
def used(site: Site) -> Used:
    return Used(site)


def open_shell(used: Used, command: tuple[str, ...], limit: Duration = LIMIT) -> None:
    groups = (TaskGroup("shell", 1, Shape(gpus=2), command=command),)
    spec = JobSpec(QueueName("q"), groups, type="interactive", idle_limit=limit)
    used.site.store.jobs.submit(JOB, spec, "ada", used.site.clock.now(), "key")
    used.site.rest()


def working(_: str) -> float | None:
    return 40.0


def unknown(_: str) -> float | None:
    return None


@pytest.mark.parametrize(
    ("command", "active", "is_ended"),
    [
        (BUSY, nothing, True),
        (IDLE, working, False),
        (BUSY, unknown, False),
        (IDLE, unknown, True),
    ],
)
def test_what_gpus_do_counts_where_it_is_known_and_what_tasks_do_elsewhere(
    used: Used, command: tuple[str, ...], active: Active, is_ended: bool
) -> None:
    open_shell(used, command)
    used.minutes(9, active)
    assert used.site.state(JOB) == "running"
    used.minutes(6, active)
    assert (used.site.store.jobs.job(JOB).outcome is not None) == is_ended


def test_the_limit_counts_from_when_a_gpu_worked_last(used: Used) -> None:
    open_shell(used, BUSY)
    used.minutes(8, working)
    used.minutes(9)
    assert used.site.state(JOB) == "running"
    used.minutes(6)
    assert used.site.store.jobs.job(JOB).outcome is not None
    (asked,) = (event for event in used.site.store.history.events(JOB) if event.kind == "asked-to-stop")
    assert asked.cause == "it was idle for its idle limit of 10m"


def test_a_limit_of_a_minute_is_kept_although_minutes_are_told_late(used: Used) -> None:
    open_shell(used, BUSY, Duration(MINUTE))
    used.minutes(4)
    assert used.site.store.jobs.job(JOB).outcome is not None


BEGIN = Instant(MINUTE)
TASK = TaskPlacement("shell", 0, NodeName("n1"))
STILL = GpuStill(BEGIN.after(5 * MINUTE), BEGIN.after(20 * MINUTE))


def known(typed_at: Instant | None) -> AttemptReport:
    did = Activity(BEGIN.after(19 * MINUTE), BEGIN.after(21 * MINUTE), typed_at)
    return AttemptReport(
        (TaskStatus(JOB, 1, "shell", 0, NodeName("n1"), "running", BEGIN, activity=did),), stopped=False
    )


@pytest.mark.parametrize(
    ("typed_at", "active_at"),
    [
        (BEGIN, STILL.since),
        (BEGIN.after(9 * MINUTE), BEGIN.after(9 * MINUTE)),
        (None, BEGIN.after(19 * MINUTE)),
    ],
)
def test_typing_is_doing_something_too(typed_at: Instant | None, active_at: Instant) -> None:
    """Where it is not told whether a person types, as by a node of an older release, all that was seen counts."""
    found = activity_of(known(typed_at), (TASK,), BEGIN, STILL)
    assert found is not None
    assert (found.active_at, found.seen_at >= STILL.seen_at) == (active_at, True)


def test_a_log_line_is_no_work(used: Used) -> None:
    did = Activity(BEGIN, BEGIN.after(MINUTE), BEGIN, BEGIN.after(MINUTE))
    status = known(BEGIN).tasks[0]
    found = activity_of(AttemptReport((msgspec.structs.replace(status, activity=did),), stopped=False), (TASK,), BEGIN)
    assert found == did
