"""Gangs that get nowhere, and gangs whose time is nearly over, in the loop: they are told, and what they asked for follows."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.control.control import LEASE
from reconciler.control.ledger_site import one_pass
from reconciler.documents.operations import Operations
from reconciler.lifecycle.jobs.backend_reports import AttemptReport
from reconciler.lifecycle.jobs.claim_context import ClaimContext
from reconciler.lifecycle.jobs.settlements import RecordMarks
from reconciler.lifecycle.jobs.standstill import is_stuck, settle_stuck, standstill_of
from reconciler.model.job_record import JobRecord
from reconciler.model.retry_policy import Backoff, FailurePattern, RetryPolicy, RetryRule
from reconciler.protocols.backend import Activity, Progress, TaskState, TaskStatus
from reconciler.protocols.ledger import Claim, Marks
from solver.model.cluster import NodeName
from solver.model.quantities import Duration, Instant
from solver.model.shape import Shape
from solver.model.workload import (
    JobName,
    JobSpec,
    QueueName,
    Stuck,
    StuckAction,
    TaskGroup,
    TaskPlacement,
    TimeLimitWarning,
)
from tests.reconciler.control.plane import Site

JOB = JobName("job")
SECOND = 1_000
AFTER = Duration(120 * SECOND)
HANGS = ("hang", "2", "60s")
IDLES = ("busy", "60s")
TRAINING = RetryPolicy("training", max_retries=2, backoff=Backoff(jitter=0.0))


def submit(
    site: Site,
    command: tuple[str, ...],
    action: StuckAction = "notify",
    *,
    stuck: bool = True,
    limit_s: int | None = None,
    warning: TimeLimitWarning | None = None,
    tasks: int = 2,
) -> None:
    site.operations = Operations(retry=(TRAINING,))
    spec = JobSpec(
        QueueName("q"),
        (TaskGroup("worker", tasks, Shape(gpus=1)),),
        command=command,
        retry_policy=TRAINING.name,
        stuck=Stuck(AFTER, action) if stuck else None,
        time_limit=None if limit_s is None else Duration(limit_s * SECOND),
        time_limit_warning=warning,
    )
    site.store.jobs.submit(JOB, spec, "ada", site.clock.now(), "key")
    site.until(JOB, "running")


def passes(site: Site, seconds: int, step: int = 10) -> None:
    for _ in range(-(-seconds // step)):
        site.one_pass(step)


def kinds(site: Site) -> list[str]:
    told = ("stuck", "goes-on", "time-limit-near")
    return [event.kind for event in site.store.history.events(JOB, 10_000) if event.kind in told]


def marks(site: Site) -> Marks:
    return next(claim.marks for claim in site.store.ledger.claims() if claim.job == JOB)


def failures(site: Site) -> list[tuple[int, str, bool]]:
    return [(failure.attempt, failure.kind, failure.counts) for failure in site.store.jobs.job(JOB).failures]


@pytest.mark.parametrize("command", [HANGS, IDLES])
def test_one_that_makes_no_progress_is_dumped_and_said_to_be_stuck_once(site: Site, command: tuple[str, ...]) -> None:
    submit(site, command)
    passes(site, 160)
    assert kinds(site) == []
    passes(site, 600)
    assert (kinds(site), site.state(JOB)) == (["stuck"], "running")
    heard = site.cluster.tells.heard
    assert sorted(telling.index for telling in heard) == [0, 1]
    assert {telling.number for telling in heard} == {marks(site).stuck_at}


def test_the_event_says_where_to_look(site: Site) -> None:
    submit(site, HANGS)
    passes(site, 300)
    (said,) = (event.cause for event in site.store.history.events(JOB) if event.kind == "stuck")
    assert said.startswith("no step was done since ")
    assert "task worker/" in said
    assert "at step 1" in said, "60 seconds of 2 steps each are about 120"


@pytest.mark.thorough
@pytest.mark.parametrize("command", [("train", "0.05"), ("busy", "forever")])
def test_one_that_makes_progress_is_left_alone(site: Site, command: tuple[str, ...]) -> None:
    submit(site, command, "fail")
    passes(site, 1_500, step=15)
    assert (kinds(site), site.state(JOB)) == ([], "running")


@pytest.mark.thorough
@pytest.mark.parametrize("command", [HANGS, IDLES])
def test_it_is_tried_again_as_often_as_its_policy_grants(site: Site, command: tuple[str, ...]) -> None:
    submit(site, command, "retry")
    passes(site, 1_500)
    assert failures(site) == [(1, "stuck", True), (2, "stuck", True)]
    outcome = site.store.jobs.job(JOB).outcome
    assert outcome is not None
    assert (outcome.state, outcome.attempt) == ("failed", 3)
    assert "made no progress since" in outcome.message
    assert "RetryPolicy training grants it no more than 2 retries" in outcome.message
    assert kinds(site) == ["stuck"] * 3


def test_with_the_action_fail_it_fails_at_once(site: Site) -> None:
    submit(site, HANGS, "fail")
    passes(site, 400)
    assert (site.state(JOB), failures(site)) == ("failed", [])
    assert site.states(JOB)[-4:] == ["starting", "running", "stopping", "failed"]


def test_a_rule_may_speak_of_what_is_stuck(site: Site) -> None:
    submit(site, HANGS, "retry")
    never = RetryRule(FailurePattern(kinds=("stuck",)), "fail")
    site.operations = Operations(retry=(msgspec.structs.replace(TRAINING, rules=(never,)),))
    passes(site, 400)
    assert (site.state(JOB), failures(site)) == ("failed", [])


def test_another_control_plane_follows_it_up(site: Site) -> None:
    """The one that found it dies before anybody was told; the next one does not find it anew."""
    submit(site, HANGS, "fail")
    passes(site, 160)
    site.faults(lost=1.0)
    while not kinds(site):
        site.one_pass()
    site.faults(lost=0.0)
    site.clock.advance(LEASE)
    other = site.plane("other")
    for _ in range(60):
        site.clock.advance(2 * SECOND)
        one_pass(other)
    assert (kinds(site), site.state(JOB)) == (["stuck"], "failed")


@pytest.mark.thorough
def test_cancelled_while_it_is_stopped_for_being_stuck_it_is_cancelled(site: Site) -> None:
    submit(site, HANGS, "fail")
    site.faults(effect_delay=Duration(20_000))
    for _ in range(400):
        site.one_pass()
        if site.state(JOB) == "stopping":
            break
    site.store.jobs.request_cancel(JOB, "ada")
    passes(site, 120)
    assert site.state(JOB) == "cancelled"


def test_nobody_looks_at_one_that_does_not_ask_for_it(site: Site) -> None:
    submit(site, HANGS, stuck=False)
    passes(site, 600)
    assert kinds(site) == []
    assert all(task.activity is None for task in site.sighted().attempt(JOB, 1).tasks)


WARNING = TimeLimitWarning(Duration(60 * SECOND), "SIGUSR1")


def test_it_is_told_once_that_its_limit_is_near(site: Site) -> None:
    submit(site, ("save", "5s"), stuck=False, limit_s=200, warning=WARNING)
    passes(site, 120)
    assert (kinds(site), site.cluster.tells.heard) == ([], [])
    passes(site, 60)
    assert kinds(site) == ["time-limit-near"]
    assert sorted(telling.index for telling in site.cluster.tells.heard) == [0, 1]
    assert len(site.cluster.tells.saved) == 2
    passes(site, 60)
    assert (kinds(site), site.state(JOB)) == (["time-limit-near"], "failed")


def test_a_warning_that_got_lost_is_sent_again_until_all_tasks_know(site: Site) -> None:
    submit(site, ("sleep", "forever"), stuck=False, limit_s=200, warning=WARNING)
    site.faults(lost=1.0)
    passes(site, 150)
    assert (kinds(site), site.cluster.tells.heard) == (["time-limit-near"], [])
    site.faults(lost=0.0)
    passes(site, 10, step=1)
    assert len(site.cluster.tells.heard) == 2
    assert kinds(site) == ["time-limit-near"]


def test_each_attempt_is_told(site: Site) -> None:
    again = RetryRule(FailurePattern(kinds=("time-limit",)), "retry")
    submit(site, ("sleep", "forever"), stuck=False, limit_s=90, warning=WARNING)
    site.operations = Operations(retry=(msgspec.structs.replace(TRAINING, rules=(again,)),))
    passes(site, 600)
    assert (kinds(site), failures(site)) == (
        ["time-limit-near"] * 3,
        [(1, "time-limit", True), (2, "time-limit", True)],
    )
    assert [telling.attempt for telling in site.cluster.tells.heard] == [1, 1, 2, 2, 3, 3]


def test_told_both_the_numbers_rise(site: Site) -> None:
    submit(site, HANGS, limit_s=260, warning=WARNING)
    passes(site, 255)
    assert kinds(site) == ["stuck", "time-limit-near"]
    by_task = {index: [t.number for t in site.cluster.tells.heard if t.index == index] for index in (0, 1)}
    now = marks(site)
    assert by_task == {0: [now.stuck_at, now.warned_at], 1: [now.stuck_at, now.warned_at]}


TASKS = tuple(TaskPlacement("worker", index, NodeName("n1")) for index in (0, 1))
NOW = Instant(10_000_000)
NOTHING = Marks()


def seen(index: int, step: int | None, said_s: float = 0, state: TaskState = "running", at: int = 0) -> TaskStatus:
    said = Instant(NOW - round(said_s * SECOND))
    progress = None if step is None else Progress(step, 1.0, said)
    return TaskStatus(
        JOB, 1, "worker", index, NodeName("n1"), state, Instant(at), activity=Activity(NOW, NOW), progress=progress
    )


def holding(*tasks: TaskStatus, noted: Marks = NOTHING, now: Instant = NOW) -> ClaimContext:
    group = (TaskGroup("worker", len(TASKS), Shape(gpus=1)),)
    spec = JobSpec(QueueName("q"), group, stuck=Stuck(AFTER, "retry"))
    claim = Claim(JOB, 1, TASKS, Instant(0), Instant(0), marks=noted)
    return ClaimContext(JobRecord(JOB, spec, "ada", Instant(0)), claim, (), AttemptReport(tasks), now)


def found(*tasks: TaskStatus, noted: Marks = NOTHING) -> str:
    """What is decided: the kind of the event, or of the settlement."""
    return ",".join(
        getattr(one, "kind", "") or type(one).__name__ for one in settle_stuck(holding(*tasks, noted=noted))
    )


def test_one_task_that_goes_on_is_progress_of_all() -> None:
    assert found(seen(0, 5, 600), seen(1, 7, 60)) == ""
    assert found(seen(0, 5, 600), seen(1, 7, 121)) == "stuck"


def test_who_says_the_same_step_again_and_again_gets_nowhere() -> None:
    said = seen(0, 5, 1), seen(1, 7, 1)
    noted = Marks(steps=12, still_since=Instant(NOW - AFTER))
    assert found(*said, noted=noted) == "stuck"
    assert found(seen(0, 5, 1), seen(1, 8, 1), noted=noted) == "RecordMarks"
    assert found(*said, noted=msgspec.structs.replace(noted, still_since=Instant(NOW - AFTER + 1))) == ""


def test_a_task_that_has_begun_anew_has_time_to_get_somewhere() -> None:
    assert found(seen(0, 5, 600), seen(1, None, at=NOW - SECOND)) == ""
    assert found(seen(0, 5, 600), seen(1, None, state="starting", at=NOW)) == ""


def test_old_news_and_none_are_never_held_against_it() -> None:
    old = msgspec.structs.replace(seen(1, 7, 600), activity=Activity(Instant(0), Instant(NOW - AFTER - 1)))
    assert found(seen(0, 5, 600), old) == ""
    assert found(seen(0, 5, 600), msgspec.structs.replace(old, activity=None)) == ""
    assert found(seen(0, 5, 600)) == "", "nothing is known of the other task"


@pytest.mark.parametrize(("rose", "follows"), [(False, "AskToStop"), (True, "goes-on")])
def test_what_goes_on_before_it_is_stopped_is_not(rose: bool, follows: str) -> None:
    noted = Marks(stuck_at=Instant(NOW - 40 * SECOND), steps=12, still_since=Instant(NOW - 200 * SECOND))
    assert found(seen(0, 5, 1), seen(1, 8 if rose else 7, 1), noted=noted) == follows


def looked_at(task: TaskStatus, at: Instant, said_s: int) -> TaskStatus:
    """The same task as it is seen at an instant, when it had said its step at another one."""
    step = task.progress.step if task.progress else 0
    progress = Progress(step, 1.0, Instant(said_s * SECOND))
    return msgspec.structs.replace(task, activity=Activity(at, at), progress=progress)


@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(1, 110), st.integers(0, 60)), min_size=1, max_size=30),
    st.integers(1, 200),
)
def test_never_stuck_while_steps_rise(rises: list[tuple[int, int, int]], look_s: int) -> None:
    """Some task does a step at least every 110 of the 120 seconds; looks come when they come, and remember what they must."""
    steps, said, noted = [0, 0], [0, 0], Marks()
    now = 0
    for task, gap_s, more in rises:
        now += gap_s
        steps[task] += 1 + more
        said[task] = now
        if now % look_s < gap_s or more % 2:
            at = Instant(now * SECOND)
            tasks = tuple(looked_at(seen(index, steps[index]), at, said[index]) for index in (0, 1))
            known = holding(*tasks, noted=noted, now=at)
            still = standstill_of(known)
            assert still is not None
            assert not is_stuck(still, AFTER, at)
            for settlement in settle_stuck(known):
                assert isinstance(settlement, RecordMarks)
                assert not settlement.kind
                noted = settlement.marks
