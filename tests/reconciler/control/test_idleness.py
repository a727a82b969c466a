"""Idle limits in the loop: an interactive job that does nothing gives its GPUs back, and no lack of news ever ends one."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.backends.simulated.backend import SimulatedBackend
from reconciler.control.control import LEASE
from reconciler.control.ledger_site import one_pass
from reconciler.lifecycle.jobs.backend_reports import AttemptReport
from reconciler.lifecycle.jobs.idleness import activity_of, idle_for, is_idle
from reconciler.protocols.backend import Activity, BackendChanges, BackendUnreachableError, Cursor, TaskStatus
from solver.model.cluster import NodeName
from solver.model.quantities import Duration, Instant
from solver.model.shape import Shape
from solver.model.workload import JobName, JobSpec, JobType, QueueName, TaskGroup, TaskPlacement
from solver.policy.policy import PriorityClass, Queue, policy_of
from tests.reconciler.control.plane import Site

JOB = JobName("notebook")
IDLE = ("sleep", "forever")
BUSY = ("busy", "forever")
MINUTE = 60
LIMIT = Duration(30 * MINUTE * 1_000)
TOLD = "it was idle for longer than its idle limit of 30m"


def submit(
    site: Site, *commands: tuple[str, ...], limit: Duration | None = LIMIT, kind: JobType = "interactive"
) -> None:
    """A gang with one task for each command."""
    groups = tuple(
        TaskGroup(f"g{number}", 1, Shape(gpus=1), command=command) for number, command in enumerate(commands)
    )
    spec = JobSpec(QueueName("q"), groups, type=kind, idle_limit=limit)
    site.store.jobs.submit(JOB, spec, "ada", site.clock.now(), "key")
    site.rest()


def minutes(site: Site, count: int) -> None:
    for _ in range(count):
        site.one_pass(MINUTE)


def ended(site: Site) -> tuple[str, str]:
    outcome = site.store.jobs.job(JOB).outcome
    return (outcome.state, outcome.message) if outcome else ("", "")


def test_one_that_does_nothing_is_ended_when_its_limit_is_over_and_not_before(site: Site) -> None:
    submit(site, IDLE)
    minutes(site, 29)
    assert site.state(JOB) == "running"
    minutes(site, 3)
    assert ended(site) == ("cancelled", TOLD)
    assert site.store.ledger.claims() == ()
    (asked,) = (event for event in site.store.history.events(JOB) if event.kind == "asked-to-stop")
    assert asked.cause == "it was idle for its idle limit of 30m"


def test_one_that_works_goes_on(site: Site) -> None:
    submit(site, BUSY)
    minutes(site, 60)
    assert site.state(JOB) == "running"


def test_the_limit_counts_from_when_it_last_did_something(site: Site) -> None:
    submit(site, ("busy", "20m"))
    minutes(site, 48)
    assert site.state(JOB) == "running"
    minutes(site, 4)
    assert ended(site) == ("cancelled", TOLD)


@pytest.mark.thorough
@pytest.mark.parametrize("busy", [BUSY, ("busy", "20m")])
def test_a_gang_is_as_active_as_its_most_active_task(site: Site, busy: tuple[str, ...]) -> None:
    submit(site, IDLE, busy)
    minutes(site, 48)
    assert site.state(JOB) == "running"
    minutes(site, 4)
    assert site.state(JOB) == ("running" if busy == BUSY else "cancelled")


@pytest.mark.thorough
@pytest.mark.parametrize(("kind", "state"), [("interactive", "cancelled"), ("gang", "running"), ("service", "running")])
def test_the_limit_of_a_class_is_for_interactive_jobs_and_fixed_when_they_start(
    site: Site, kind: JobType, state: str
) -> None:
    def allow(limit: Duration | None) -> None:
        site.policy = policy_of(
            (Queue(QueueName("q")),),
            (PriorityClass("people", idle_limit=limit),),
            msgspec.structs.replace(site.policy.scheduling, default_priority_class="people"),
        )

    allow(LIMIT)
    submit(site, IDLE, limit=None, kind=kind)
    allow(None)
    minutes(site, 32)
    assert site.state(JOB) == state


def test_another_control_plane_ends_it_in_time(site: Site) -> None:
    submit(site, IDLE)
    minutes(site, 20)
    site.clock.advance(LEASE)
    other = site.plane("other")
    for _ in range(12 * 6):
        site.clock.advance(10_000)
        one_pass(other)
    assert ended(site) == ("cancelled", TOLD)


def test_a_backend_that_is_not_reached_ends_nobody_and_its_news_do_afterwards(site: Site) -> None:
    """Nothing is heard for an hour, in which one job works and one does not: what counts is what is seen then."""
    submit(site, ("busy", "55m"))
    site.faults(blind=1.0)
    for _ in range(60):
        site.clock.advance(60_000)
        with pytest.raises(BackendUnreachableError):
            one_pass(site.only_plane)
    site.faults(blind=0.0)
    minutes(site, 24)
    assert site.state(JOB) == "running"
    minutes(site, 3)
    assert ended(site) == ("cancelled", TOLD)


def test_what_is_not_looked_at_is_not_idle(site: Site) -> None:
    submit(site, IDLE)
    minutes(site, 10)
    site.faults(unwatched=1.0)
    minutes(site, 60)
    assert site.state(JOB) == "running"
    site.faults(unwatched=0.0)
    minutes(site, 2)
    assert ended(site) == ("cancelled", TOLD)


def test_old_news_end_nobody(site: Site) -> None:
    """It had done nothing for as long as it may when it was last seen, hours ago: what it does now is not known."""
    submit(site, IDLE)
    for _ in range(6 * 29):
        site.clock.advance(10_000)
        site.backend.changes(Cursor(0))
    site.clock.advance(3 * MINUTE * 1_000)
    site.backend.changes(Cursor(0))
    site.faults(unwatched=1.0)
    site.clock.advance(3_600_000)
    minutes(site, 10)
    assert idle_for(_activity(site)) >= LIMIT
    assert site.state(JOB) == "running"


class Mute(SimulatedBackend):
    """One that can't say what tasks do."""

    def changes(self, since: Cursor) -> BackendChanges:
        known = super().changes(since)
        return msgspec.structs.replace(
            known, tasks=tuple(msgspec.structs.replace(task, activity=None) for task in known.tasks)
        )


def test_where_nobody_says_what_it_does_the_limit_is_not_kept_and_that_is_said(site: Site) -> None:
    site.backend = Mute(site.cluster)
    site.only_plane = site.plane("only")
    submit(site, IDLE)
    minutes(site, 60)
    assert site.state(JOB) == "running"
    assert site.events(JOB).count("unwatched") == 1


def test_one_that_is_watched_is_not_said_to_be_unwatched(site: Site) -> None:
    submit(site, IDLE)
    assert "running" in site.events(JOB)
    assert "unwatched" not in site.events(JOB)


@pytest.mark.thorough
def test_who_cancels_it_while_it_is_ended_has_cancelled_it(site: Site) -> None:
    submit(site, IDLE)
    while "asked-to-stop" not in site.events(JOB):
        site.one_pass(10)
    site.store.jobs.request_cancel(JOB, "bob")
    minutes(site, 1)
    assert ended(site) == ("cancelled", "cancelled by bob")


BEGIN = Instant.parse("2026-03-01T12:00:00Z")
GANG = tuple(TaskPlacement("g", index, NodeName("n1")) for index in range(3))
SECONDS = st.integers(0, 600)


@given(st.lists(st.tuples(st.frozensets(SECONDS), SECONDS), min_size=1, max_size=3), SECONDS, st.integers(1, 300))
def test_whoever_is_called_idle_has_done_nothing_for_as_long_as_that(
    gang: list[tuple[frozenset[int], int]], now_s: int, limit_s: int
) -> None:
    """Each task did something at some seconds and was looked at last at one, of which some are still to come."""

    def look(active: frozenset[int], seen_s: int) -> Activity:
        seen = min(seen_s, now_s)
        return Activity(_at(max((second for second in active if second <= seen), default=0)), _at(seen))

    tasks = tuple(
        TaskStatus(JOB, 1, "g", index, NodeName("n1"), "running", BEGIN, activity=look(*done))
        for index, done in enumerate(gang)
    )
    known = activity_of(AttemptReport(tasks), GANG[: len(gang)], BEGIN)
    assert known is not None
    if is_idle(known, Duration(limit_s * 1_000), _at(now_s)):
        last_look = min(min(seen, now_s) for _, seen in gang)
        span = range(last_look - limit_s + 1, last_look + 1)
        assert last_look >= limit_s
        assert now_s - last_look <= limit_s
        assert not any(second in span for active, _ in gang for second in active if second <= last_look)


def test_of_a_gang_of_which_one_task_is_not_known_nothing_is_known() -> None:
    seen = TaskStatus(JOB, 1, "g", 0, NodeName("n1"), "running", BEGIN, activity=Activity(BEGIN, _at(600)))
    silent = msgspec.structs.replace(seen, index=1, activity=None)
    assert activity_of(AttemptReport((seen,)), GANG[:1], BEGIN) == seen.activity
    assert activity_of(AttemptReport((seen,)), GANG[:2], BEGIN) is None
    assert activity_of(AttemptReport((seen, silent)), GANG[:2], BEGIN) is None
    ended = msgspec.structs.replace(silent, state="succeeded", at=_at(400))
    assert activity_of(AttemptReport((seen, ended)), GANG[:2], BEGIN) == Activity(_at(400), _at(600))


def _at(second: int) -> Instant:
    return BEGIN.after(second * 1_000)


def _activity(site: Site) -> Activity:
    (task,) = site.sighted().attempt(JOB, 1).tasks
    assert task.activity is not None
    return task.activity
