"""What follows from what the backend reports, fact by fact: the table behind the loop."""

from __future__ import annotations

import msgspec
import pytest

from reconciler.lifecycle.jobs.backend_reports import AttemptReport, BackendReports
from reconciler.lifecycle.jobs.decisions import settlements
from reconciler.lifecycle.jobs.gang_stop import RESEND_AFTER, STOP_GRACE
from reconciler.lifecycle.jobs.idleness import NEWS_MAX
from reconciler.lifecycle.jobs.outcome import describe
from reconciler.lifecycle.jobs.settlements import (
    AskToStop,
    Cancel,
    ConfirmRunning,
    Cull,
    Fail,
    ForgetAttempt,
    GiveBack,
    Retry,
    Send,
    Settlement,
    Succeed,
    TimeOut,
)
from reconciler.lifecycle.jobs.states import FOLLOWERS, IllegalTransitionError, phase_of, require_transition, state_of
from reconciler.model.job_record import TERMINAL, JobOutcome, JobRecord, JobState
from reconciler.protocols.backend import Activity, StartGang, StopGang, TaskState, TaskStatus
from reconciler.protocols.ledger import Claim, Marks
from solver.model.cluster import NodeName
from solver.model.inflight import Intent
from solver.model.quantities import Duration, Instant
from solver.model.workload import JobName, JobSpec, QueueName, TaskPlacement, TimeLimitWarning

NOW = Instant.parse("2026-03-01T12:00:00Z")
JOB = JobName("job")
SPEC = JobSpec(QueueName("q"), ())
TASKS = tuple(TaskPlacement("worker", index, NodeName(f"n{index}")) for index in (0, 1))
END = (GiveBack(JOB, 1), ForgetAttempt(JOB, 1))
LIMIT = Duration(3_600_000)
DONE = JobOutcome("succeeded", NOW)


def record(cancelled: bool = False, outcome: JobOutcome | None = None) -> JobRecord:
    return JobRecord(JOB, SPEC, "ada", NOW, "bob" if cancelled else "", outcome)


def task(index: int, state: TaskState) -> TaskStatus:
    return TaskStatus(
        JOB, 1, "worker", index, NodeName(f"n{index}"), state, NOW.after(index), 3 if state == "failed" else None
    )


def settled(
    *states: TaskState,
    stopped: bool = False,
    intents: tuple[str, ...] = (),
    running: bool = False,
    cancelled: bool = False,
    outcome: JobOutcome | None = None,
    asked_ago: int = 0,
    limit_over_for: int | None = None,
) -> tuple[Settlement, ...]:
    """For one claimed gang of two tasks, reported in these states; perhaps `limit_over_for` beyond its limit."""
    known = AttemptReport(tuple(task(index, state) for index, state in enumerate(states)), stopped)
    claim = Claim(JOB, 1, TASKS, NOW, NOW if running else None)
    if limit_over_for is not None:
        claim = Claim(JOB, 1, TASKS, NOW, NOW.after(-LIMIT - limit_over_for), LIMIT)
    asked = NOW.after(-asked_ago)
    made = [
        Intent("start" if kind == "start" else "stop", JOB, 1, asked, asked.after(STOP_GRACE), TASKS)
        for kind in intents
    ]
    sighted = BackendReports({}, {(JOB, 1): known} if states or stopped else {})
    return tuple(settlements([record(cancelled, outcome)], [claim], made, sighted, NOW))


def test_nothing_known_is_nothing_done() -> None:
    assert settled(intents=("start",)) == ()
    assert settled(running=True) == ()


def test_a_start_without_an_effect_is_sent_again_after_a_pause() -> None:
    order = StartGang(JOB, 1, TASKS, SPEC, user="ada")
    assert settled(intents=("start",), asked_ago=RESEND_AFTER) == (Send(order),)
    assert settled("running", intents=("start",), asked_ago=RESEND_AFTER) == (Send(order),), "one task is not known"
    assert settled("running", "starting", intents=("start",), asked_ago=RESEND_AFTER) == ()


def test_a_gang_runs_when_all_its_tasks_do() -> None:
    assert settled("running", "starting", intents=("start",)) == ()
    assert settled("running", "running", intents=("start",)) == (ConfirmRunning(JOB, 1, NOW.after(1)),)
    assert settled("succeeded", "running", intents=("start",)) == (ConfirmRunning(JOB, 1, NOW.after(1)),)
    assert settled("running", "running", running=True) == ()


def test_finishing_comes_before_releasing_and_releasing_before_forgetting() -> None:
    assert settled("succeeded", "succeeded", running=True) == (Succeed(JOB), *END)
    assert settled("succeeded", "failed", running=True) == (
        Fail(JOB, task(1, "failed"), describe(task(1, "failed"))),
        *END,
    )


def test_a_crash_after_finishing_goes_on_with_releasing() -> None:
    assert settled("succeeded", "succeeded", outcome=DONE) == END


@pytest.mark.parametrize("broken", ["failed", "lost"])
def test_siblings_of_a_broken_task_are_stopped_before_the_job_is_finished(broken: TaskState) -> None:
    (asked,) = settled("running", broken, running=True)
    assert isinstance(asked, AskToStop)
    assert "worker/1" in asked.cause
    assert settled("running", broken, running=True, intents=("stop",)) == ()
    follows, *end = settled("stopped", broken, running=True, intents=("stop",), stopped=True)
    assert tuple(end) == END
    if broken == "failed":
        assert follows == Fail(JOB, task(1, broken), "task worker/1 on n1 failed with exit code 3")
    else:
        # Its machine was lost, which is no fault of the job: it begins again.
        assert isinstance(follows, Retry)
        assert (follows.failure.kind, follows.failure.counts) == ("node", False)


def test_a_lost_task_may_run_on_somewhere_until_its_stop_is_done() -> None:
    (asked,) = settled("succeeded", "lost", running=True)
    assert isinstance(asked, AskToStop)


def test_cancelling_stops_first() -> None:
    (asked,) = settled("running", "running", running=True, cancelled=True)
    assert asked == AskToStop(JOB, 1, "cancelled by bob")
    assert settled("stopped", "stopped", cancelled=True, intents=("stop",), stopped=True) == (Cancel(JOB, "bob"), *END)


def test_a_cancelled_gang_whose_tasks_die_of_each_other_is_cancelled() -> None:
    assert settled("stopped", "failed", cancelled=True, intents=("stop",), stopped=True) == (Cancel(JOB, "bob"), *END)


def test_who_succeeds_while_being_cancelled_has_succeeded() -> None:
    assert settled("succeeded", "succeeded", cancelled=True, intents=("stop",)) == (Succeed(JOB), *END)


def test_who_failed_before_anybody_cancelled_has_failed() -> None:
    assert settled("failed", "failed", running=True, cancelled=True)[0] == Fail(
        JOB, task(0, "failed"), f"{describe(task(0, 'failed'))}, and 1 task more went with it"
    )


def test_at_its_limit_a_gang_is_asked_to_stop_and_has_failed() -> None:
    assert settled("running", "running", limit_over_for=-1) == ()
    assert settled("running", "running", limit_over_for=0) == (AskToStop(JOB, 1, "its time limit of 1h is over"),)
    assert settled("running", "running", intents=("stop",), limit_over_for=1) == ()
    assert settled("stopped", "stopped", intents=("stop",), stopped=True, limit_over_for=1) == (
        TimeOut(JOB, LIMIT),
        *END,
    )


@pytest.mark.parametrize("state", ["failed", "succeeded", "lost"])
def test_however_tasks_end_once_told_to_the_limit_is_why(state: TaskState) -> None:
    """Both ended after the stop was asked for, a millisecond ago."""
    told = settled(state, state, intents=("stop",), stopped=True, asked_ago=1, limit_over_for=1)
    assert told == (TimeOut(JOB, LIMIT), *END)


def test_what_a_gang_did_before_it_was_told_to_stop_counts() -> None:
    """The tasks ended at NOW and a millisecond later; the stop was asked for two milliseconds after NOW."""
    at_limit = {"intents": ("stop",), "stopped": True, "asked_ago": -2, "limit_over_for": 1}
    assert settled("succeeded", "succeeded", **at_limit) == (Succeed(JOB), *END)  # type: ignore[arg-type]
    failed = Fail(JOB, task(1, "failed"), describe(task(1, "failed")))
    assert settled("succeeded", "failed", **at_limit) == (failed, *END)  # type: ignore[arg-type]


def test_who_is_cancelled_at_its_limit_is_cancelled() -> None:
    told = settled("stopped", "stopped", cancelled=True, intents=("stop",), stopped=True, limit_over_for=1)
    assert told == (Cancel(JOB, "bob"), *END)


def test_a_gang_that_was_not_ready_in_time_has_not_reached_its_limit() -> None:
    claim = Claim(JOB, 1, TASKS, NOW.after(-2 * LIMIT), None, LIMIT)
    stop = Intent("stop", JOB, 1, NOW, NOW)
    sighted = BackendReports({}, {(JOB, 1): AttemptReport((), True)})
    assert tuple(settlements([record()], [claim], [stop], sighted, NOW)) == END


def test_a_stop_without_an_effect_is_sent_again() -> None:
    assert settled("running", "running", intents=("stop",), asked_ago=1) == ()
    assert settled("running", "running", intents=("stop",), asked_ago=RESEND_AFTER) == (
        Send(StopGang(JOB, 1, STOP_GRACE)),
    )


def test_what_was_stopped_to_be_tried_again_waits_again() -> None:
    assert settled(intents=("start", "stop"), stopped=True) == END
    assert settled("stopped", "stopped", intents=("stop",)) == END


def test_a_queued_job_that_is_cancelled_ends_at_once() -> None:
    assert tuple(settlements([record(cancelled=True)], [], [], BackendReports({}, {}), NOW)) == (Cancel(JOB, "bob"),)
    assert tuple(settlements([record(cancelled=True, outcome=DONE)], [], [], BackendReports({}, {}), NOW)) == ()


def test_what_nobody_claims_is_stopped_and_then_forgotten() -> None:
    unknown = BackendReports({}, {(JOB, 1): AttemptReport((task(0, "running"),))})
    assert tuple(settlements([], [], [], unknown, NOW)) == (Send(StopGang(JOB, 1, STOP_GRACE)),)
    assert tuple(settlements([], [], [], BackendReports({}, {(JOB, 1): AttemptReport((), True)}), NOW)) == (
        ForgetAttempt(JOB, 1),
    )


def test_an_older_attempt_says_nothing_about_the_newer() -> None:
    sighted = BackendReports({}, {(JOB, 1): AttemptReport((task(0, "failed"), task(1, "failed")), True)})
    claim = Claim(JOB, 2, TASKS, NOW)
    assert tuple(settlements([record()], [claim], [], sighted, NOW)) == (ForgetAttempt(JOB, 1),)


@pytest.mark.parametrize("ended", sorted(TERMINAL))
def test_nothing_follows_an_end(ended: JobState) -> None:
    assert FOLLOWERS[ended] == frozenset()
    for after in FOLLOWERS:
        with pytest.raises(IllegalTransitionError, match=f"job is {ended} and can't become {after}"):
            require_transition(JOB, ended, after)


def test_states_are_derived() -> None:
    claim, confirmed = Claim(JOB, 1, TASKS, NOW), Claim(JOB, 1, TASKS, NOW, NOW)
    stop, earlier = Intent("stop", JOB, 1, NOW, NOW), Intent("stop", JOB, 0, NOW, NOW)
    assert state_of(record(), None, ()) == "queued"
    assert state_of(record(), claim, (earlier,)) == "starting"
    assert state_of(record(), confirmed, ()) == "running"
    assert state_of(record(), confirmed, (stop,)) == "stopping"
    assert state_of(record(outcome=DONE), confirmed, ()) == "succeeded"
    assert phase_of("succeeded") == "stopping", "it holds devices still"


SEEN = Activity(NOW.after(-LIMIT - 20_000), NOW.after(-10_000))


def idle(*tasks: TaskStatus, stop: Intent | None = None, time_limit: Duration | None = None) -> tuple[Settlement, ...]:
    """For one gang of two tasks that runs since before SEEN and may be idle for LIMIT."""
    claim = Claim(JOB, 1, TASKS, NOW, NOW.after(-2 * LIMIT), time_limit, idle_limit=LIMIT)
    known = AttemptReport(tasks, stopped=all(status.state != "running" for status in tasks))
    return tuple(settlements([record()], [claim], [stop] if stop else [], BackendReports({}, {(JOB, 1): known}), NOW))


def seen(index: int, activity: Activity | None = SEEN) -> TaskStatus:
    return msgspec.structs.replace(task(index, "running"), activity=activity)


CULL = Intent("stop", JOB, 1, NOW.after(-1), NOW.after(STOP_GRACE), purpose="cull")


def test_idle_for_as_long_as_it_may_be_it_is_asked_to_stop() -> None:
    asked = AskToStop(JOB, 1, "it was idle for its idle limit of 1h", "cull")
    assert idle(seen(0), seen(1)) == (asked,)
    assert idle(seen(0), seen(1), stop=CULL) == ()
    barely = Activity(SEEN.active_at.after(10_001), SEEN.seen_at)
    assert idle(seen(0), seen(1, barely)) == ()


def test_it_is_idle_only_if_that_is_known_of_every_task() -> None:
    assert idle(seen(0), seen(1, None)) == ()
    assert idle(seen(0), seen(1, Activity(NOW.after(-1), NOW))) == ()


def test_news_that_are_old_end_nobody() -> None:
    old = Activity(NOW.after(-4 * LIMIT), NOW.after(-NEWS_MAX - 1))
    assert idle(seen(0), seen(1, old)) == ()


def test_the_time_limit_comes_before_the_idle_limit() -> None:
    assert idle(seen(0), seen(1), time_limit=LIMIT) == (AskToStop(JOB, 1, "its time limit of 1h is over"),)


@pytest.mark.parametrize("state", ["stopped", "failed", "succeeded", "lost"])
def test_however_tasks_end_once_told_their_idleness_is_why(state: TaskState) -> None:
    assert idle(task(0, state), task(1, state), stop=CULL) == (
        Cull(JOB, f"it was idle for longer than its idle limit of {LIMIT}"),
        *END,
    )


def test_what_had_failed_before_it_was_asked_to_stop_has_failed() -> None:
    broken = msgspec.structs.replace(task(0, "failed"), at=NOW.after(-2))
    assert idle(broken, task(1, "stopped"), stop=CULL)[0] == Fail(JOB, broken, describe(broken))


def test_what_was_asked_to_stop_for_another_reason_was_not_idle() -> None:
    other = msgspec.structs.replace(CULL, purpose="end")
    assert idle(task(0, "stopped"), task(1, "stopped"), stop=other) == END


def test_a_gang_that_nobody_watches_is_said_to_be_when_it_runs() -> None:
    claim = Claim(JOB, 1, TASKS, NOW, idle_limit=LIMIT)

    def confirmed(*tasks: TaskStatus) -> tuple[Settlement, ...]:
        return tuple(settlements([record()], [claim], [], BackendReports({}, {(JOB, 1): AttemptReport(tasks)}), NOW))

    assert confirmed(seen(0), seen(1)) == (ConfirmRunning(JOB, 1, NOW.after(1)),)
    assert confirmed(seen(0), seen(1, None)) == (ConfirmRunning(JOB, 1, NOW.after(1), unwatched=True),)


HOUR = Duration(3_600_000)
CLAIMED = NOW.after(-60_000)


def by_clock(ahead: int, *tasks: TaskStatus, claim: Claim, stop: Intent | None = None) -> tuple[Settlement, ...]:
    """For one claimed gang, whose second node has a clock that is so far ahead."""
    told = [msgspec.structs.replace(one, at=one.at.after(ahead)) if one.index else one for one in tasks]
    known = AttemptReport(tuple(told), stopped=stop is not None)
    sighted = BackendReports({}, {(JOB, 1): known})
    return tuple(settlements([record()], [claim], [stop] if stop else [], sighted, NOW))


@pytest.mark.parametrize(("ahead", "since"), [(-HOUR, NOW), (0, NOW.after(1)), (HOUR, NOW)])
def test_a_time_limit_counts_from_no_instant_of_a_wrong_clock(ahead: int, since: Instant) -> None:
    claim = Claim(JOB, 1, TASKS, CLAIMED, time_limit=LIMIT)
    found = by_clock(ahead, task(0, "running"), task(1, "running"), claim=claim)
    assert found == (ConfirmRunning(JOB, 1, since),)


def test_where_all_clocks_are_behind_a_gang_runs_since_that_is_seen() -> None:
    both_behind = [msgspec.structs.replace(task(index, "running"), at=NOW.after(-HOUR)) for index in (0, 1)]
    found = by_clock(0, *both_behind, claim=Claim(JOB, 1, TASKS, CLAIMED, time_limit=LIMIT))
    assert found == (ConfirmRunning(JOB, 1, NOW),)


@pytest.mark.parametrize("ahead", [-HOUR, 0, HOUR])
def test_what_dies_of_an_eviction_has_not_failed_whatever_its_clock(ahead: int) -> None:
    claim = Claim(JOB, 1, TASKS, CLAIMED, CLAIMED)
    stop = Intent("stop", JOB, 1, NOW.after(-5), NOW.after(STOP_GRACE), purpose="evict", beneficiary=JobName("other"))
    assert by_clock(ahead, task(0, "stopped"), task(1, "failed"), claim=claim, stop=stop) == END


@pytest.mark.parametrize("ahead", [-HOUR, HOUR])
def test_a_job_rests_for_as_long_as_ever_whatever_the_clock_of_the_node_that_was_lost(ahead: int) -> None:
    stop = Intent("stop", JOB, 1, NOW, NOW.after(STOP_GRACE))
    claim = Claim(JOB, 1, TASKS, CLAIMED, CLAIMED)
    right, *_ = by_clock(0, task(0, "stopped"), task(1, "lost"), claim=claim, stop=stop)
    wrong, *_ = by_clock(ahead, task(0, "stopped"), task(1, "lost"), claim=claim, stop=stop)
    assert isinstance(right, Retry)
    assert isinstance(wrong, Retry)
    assert abs(wrong.failure.not_before - right.failure.not_before) <= 1


def test_a_task_whose_clock_is_ahead_is_told_again_what_it_has_not_been_told() -> None:
    warned = msgspec.structs.replace(SPEC, time_limit_warning=TimeLimitWarning(LIMIT))
    marks = Marks(warned_at=NOW.after(-RESEND_AFTER))
    claim = Claim(JOB, 1, TASKS, CLAIMED, CLAIMED, time_limit=LIMIT, marks=marks)
    ahead = [msgspec.structs.replace(task(index, "running"), at=NOW.after(HOUR)) for index in (0, 1)]
    known = BackendReports({}, {(JOB, 1): AttemptReport(tuple(ahead))})
    (again,) = settlements([msgspec.structs.replace(record(), spec=warned)], [claim], [], known, NOW)
    assert isinstance(again, Send)
