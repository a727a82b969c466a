"""What follows, fact by fact, while a gang changes its size."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from reconciler.lifecycle.jobs.backend_reports import AttemptReport, BackendReports
from reconciler.lifecycle.jobs.decisions import settlements
from reconciler.lifecycle.jobs.gang_stop import RESEND_AFTER
from reconciler.lifecycle.jobs.outcome import describe
from reconciler.lifecycle.jobs.settlements import (
    AskToStop,
    Cancel,
    ConfirmGrown,
    ConfirmShrunk,
    Fail,
    ForgetAttempt,
    GiveBack,
    Send,
    Settlement,
    Succeed,
)
from reconciler.model.job_record import JobRecord
from reconciler.protocols.backend import GrowGang, StopGang, StopTasks, TaskState, TaskStatus
from reconciler.protocols.ledger import Claim
from solver.model.cluster import NodeName
from solver.model.inflight import Intent, IntentKind
from solver.model.quantities import Duration, Instant
from solver.model.workload import JobName, JobSpec, QueueName, TaskPlacement

NOW = Instant.parse("2026-03-01T12:00:00Z")
JOB = JobName("job")
SPEC = JobSpec(QueueName("q"), ())
STAYS, CHANGES = (TaskPlacement("worker", index, NodeName(f"n{index}")) for index in (0, 1))
END = (GiveBack(JOB, 1), ForgetAttempt(JOB, 1))
OVER = Duration(1_000)
GRACE = Duration(10_000)


def task(index: int, state: TaskState, growth: int = 0) -> TaskStatus:
    return TaskStatus(JOB, 1, "worker", index, NodeName(f"n{index}"), state, NOW, 3, growth=growth)


def settled(
    *known: TaskStatus,
    kinds: tuple[IntentKind, ...] = (),
    left: int | None = None,
    growth: int = 0,
    asked_ago: int = 0,
    stopped: bool = False,
    cancelled: bool = False,
    evicts: bool = False,
    limit: Duration | None = None,
) -> tuple[Settlement, ...]:
    """For a gang of two that runs, of which worker/1 is to leave or to join."""
    asked = NOW.after(-asked_ago)
    intents = [
        Intent(
            kind,
            JOB,
            1,
            asked,
            asked.after(GRACE),
            () if kind == "stop" else (CHANGES,),
            purpose="evict" if evicts else "end",
        )
        for kind in kinds
    ]
    claim = Claim(JOB, 1, (STAYS, CHANGES), NOW.after(-OVER), NOW.after(-OVER), limit, growth)
    gone: Mapping[tuple[str, int], int] = {} if left is None else {("worker", 1): left}
    sighted = BackendReports({}, {(JOB, 1): AttemptReport(known, stopped, gone)})
    record = JobRecord(JOB, SPEC, "ada", NOW, "bob" if cancelled else "")
    return tuple(settlements([record], [claim], intents, sighted, NOW))


@pytest.mark.parametrize("state", ["running", "starting", "stopped", "failed", "succeeded", "lost"])
def test_only_who_is_known_to_have_left_has(state: TaskState) -> None:
    """However it ended: a backend that vouches for it has kept the order, so that no late one starts it again."""
    facts = (task(0, "running"), task(1, state))
    assert settled(*facts, kinds=("shrink",)) == ()
    assert settled(*facts, kinds=("shrink",), left=0) == (ConfirmShrunk(JOB, 1),)


def test_what_left_in_a_former_life_says_nothing_of_this_one() -> None:
    assert settled(task(0, "running"), task(1, "running", 2), kinds=("shrink",), left=1, growth=2) == ()
    assert settled(task(0, "running"), task(1, "failed", 1), growth=2, left=1, kinds=("grow",)) == ()
    assert settled(task(0, "running"), task(1, "failed", 1), growth=2, left=1, kinds=("grow", "shrink")) == ()
    told = settled(task(0, "running"), task(1, "failed", 1), growth=2, left=2, kinds=("grow", "shrink"))
    assert told == (ConfirmShrunk(JOB, 1),)


def test_a_gang_has_grown_when_all_who_joined_run() -> None:
    assert settled(task(0, "running"), kinds=("grow",), growth=1) == ()
    assert settled(task(0, "running"), task(1, "starting", 1), kinds=("grow",), growth=1) == ()
    assert settled(task(0, "running"), task(1, "running", 1), kinds=("grow",), growth=1) == (ConfirmGrown(JOB, 1),)


def test_orders_without_an_effect_are_sent_again_after_a_pause() -> None:
    late: dict[str, int] = {"asked_ago": RESEND_AFTER, "growth": 2}
    assert settled(task(0, "running"), kinds=("grow",), **late) == (  # type: ignore[arg-type]
        Send(GrowGang(JOB, 1, 2, (CHANGES,), (STAYS,), SPEC, user="ada")),
    )
    assert settled(task(0, "running"), task(1, "starting", 2), kinds=("grow",), **late) == ()  # type: ignore[arg-type]
    assert settled(task(0, "running"), task(1, "running"), kinds=("shrink",), **late) == (  # type: ignore[arg-type]
        Send(StopTasks(JOB, 1, 2, (CHANGES,), GRACE)),
    )


def test_who_leaves_before_it_has_joined_is_only_told_to_leave() -> None:
    told = settled(task(0, "running"), kinds=("grow", "shrink"), growth=1, asked_ago=RESEND_AFTER)
    assert told == (Send(StopTasks(JOB, 1, 1, (CHANGES,), GRACE)),)


@pytest.mark.parametrize("state", ["failed", "lost"])
def test_how_the_leaving_end_is_no_failure_but_the_joined_are_members(state: TaskState) -> None:
    assert settled(task(0, "running"), task(1, state), kinds=("shrink",)) == ()
    (asked,) = settled(task(0, "running"), task(1, state, 1), kinds=("grow",), growth=1)
    assert isinstance(asked, AskToStop)
    assert "worker/1" in asked.cause
    (asked,) = settled(task(0, "failed"), task(1, "running"), kinds=("shrink",))
    assert isinstance(asked, AskToStop)


def test_a_job_is_judged_by_the_tasks_that_stay() -> None:
    (asked,) = settled(task(0, "succeeded"), task(1, "running"), kinds=("shrink",))
    assert isinstance(asked, AskToStop)
    facts = (task(0, "succeeded"), task(1, "failed"))
    assert settled(*facts, kinds=("shrink", "stop"), stopped=True) == (Succeed(JOB), *END)
    assert settled(*facts, kinds=("shrink",)) == (Succeed(JOB), *END)
    culprit = task(0, "failed")
    assert settled(culprit, task(1, "succeeded"), kinds=("shrink",)) == (Fail(JOB, culprit, describe(culprit)), *END)


def test_a_lost_task_that_is_to_leave_may_run_on_somewhere() -> None:
    (asked,) = settled(task(0, "succeeded"), task(1, "lost"), kinds=("shrink",))
    assert isinstance(asked, AskToStop)
    assert settled(task(0, "succeeded"), task(1, "lost"), kinds=("shrink",), left=0) == (Succeed(JOB), *END)


def test_who_has_left_is_not_heard_any_more() -> None:
    """The claim is of one task; the backend still reports the other."""
    claim = Claim(JOB, 1, (STAYS,), NOW, NOW)
    for state, follows in (("running", ()), ("succeeded", (Succeed(JOB), *END))):
        known = AttemptReport((task(0, state), task(1, "failed")), left={("worker", 1): 0})  # type: ignore[arg-type]
        record = JobRecord(JOB, SPEC, "ada", NOW)
        assert tuple(settlements([record], [claim], [], BackendReports({}, {(JOB, 1): known}), NOW)) == follows


def test_a_stop_of_the_whole_gang_overrides_what_is_in_flight() -> None:
    both = (task(0, "running"), task(1, "stopped"))
    kinds: tuple[IntentKind, ...] = ("stop", "shrink", "grow")
    assert settled(*both, kinds=kinds, left=1, growth=1) == ()
    assert settled(*both, kinds=kinds, asked_ago=RESEND_AFTER) == (Send(StopGang(JOB, 1, GRACE)),)
    assert settled(*both, kinds=("shrink",), cancelled=True) == (AskToStop(JOB, 1, "cancelled by bob"),)
    ended = (task(0, "stopped"), task(1, "failed"))
    assert settled(*ended, kinds=kinds, stopped=True, cancelled=True) == (Cancel(JOB, "bob"), *END)
    assert settled(*ended, kinds=kinds, stopped=True, evicts=True, asked_ago=-1) == END, "it waits again"
    assert settled(*both, kinds=("shrink",), limit=OVER) == (AskToStop(JOB, 1, "its time limit of 1s is over"),)
