"""What kind of failure it was, whether the job begins once more, and after which rest: tables, and properties of any history."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.lifecycle.jobs.retries import QUIET, Mishap, classify, in_a_row, rest_before, retry_of, signal_of
from reconciler.model.failure import Failure, FailureKind
from reconciler.model.retry_policy import NO_RETRIES, Backoff, FailurePattern, RetryAction, RetryPolicy, RetryRule
from reconciler.protocols.backend import MemoryUse, TaskState, TaskStatus
from solver.model.cluster import NodeName
from solver.model.quantities import Duration, Instant, Memory
from solver.model.workload import JobName

JOB = JobName("job")
NOW = Instant(1_700_000_000_000)
GI = 2**30


def task(exit_code: int | None, memory: MemoryUse | None = None, state: TaskState = "failed") -> TaskStatus:
    return TaskStatus(JOB, 1, "worker", 0, NodeName("n1"), state, NOW, exit_code, memory=memory)


def used(peak: float, limit: int = 64, exceeded: bool = False) -> MemoryUse:
    return MemoryUse(Memory(int(peak * GI)), Memory(limit * GI), exceeded)


@pytest.mark.parametrize(
    ("seen", "log", "gpu_broken", "kind"),
    [
        (task(1), "", False, "exit"),
        (task(255), "", False, "exit"),
        (task(126), "", False, "launch"),
        (task(127), "", False, "launch"),
        (task(139), "", False, "signal"),
        (task(137), "", False, "signal"),
        (task(137, used(63)), "", False, "out-of-memory"),
        (task(137, used(32)), "", False, "signal"),
        (task(137, used(63, limit=0)), "", False, "signal"),
        (task(143, used(63)), "", False, "signal"),
        (task(1, used(70, exceeded=True)), "", False, "out-of-memory"),
        (task(1), "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", False, "out-of-memory"),
        (task(1), "MemoryError", False, "out-of-memory"),
        (task(1), "CUDA error: an illegal memory access was encountered", True, "gpu"),
        (task(None, state="lost"), "", False, "node"),
        (task(None, state="lost"), "", True, "gpu"),
    ],
)
def test_the_kind_of_a_failure(seen: TaskStatus, log: str, gpu_broken: bool, kind: FailureKind) -> None:
    assert classify(seen, log, gpu_broken) == kind


def test_signals_are_known_by_the_exit_code() -> None:
    assert [signal_of(code) for code in (None, 0, 1, 128, 137, 139, 255)] == ["", "", "", "", "SIGKILL", "SIGSEGV", ""]


def mishap(kind: FailureKind = "exit", exit_code: int | None = 1, group: str = "worker", log: str = "") -> Mishap:
    return Mishap(1, kind, NOW, "it failed", group, exit_code, log)


def policy(*rules: tuple[FailurePattern, RetryAction], most: int = 3) -> RetryPolicy:
    return RetryPolicy("p", most, rules=tuple(RetryRule(on, action) for on, action in rules))


SEGFAULT = FailurePattern(signals=("SIGSEGV",))


@pytest.mark.parametrize(
    ("seen", "by", "counts"),
    [
        (mishap("node", None), NO_RETRIES, False),
        (mishap("gpu"), NO_RETRIES, False),
        (mishap("exit"), NO_RETRIES, None),
        (mishap("exit"), policy(), True),
        (mishap("signal", 139), policy(), True),
        (mishap("launch", 127), policy(), None),
        (mishap("out-of-memory"), policy(), None),
        (mishap("time-limit", None), policy(), None),
        (mishap("out-of-memory"), policy((FailurePattern(kinds=("out-of-memory",)), "retry")), True),
        (mishap("node", None), policy((FailurePattern(kinds=("node",)), "fail")), None),
        (mishap("signal", 139), policy((SEGFAULT, "fail")), None),
        (mishap("signal", 137), policy((SEGFAULT, "fail")), True),
        (mishap(exit_code=77), policy((FailurePattern(exit_codes=(75, 77)), "ignore-count"), most=0), False),
        (mishap(group="driver"), policy((FailurePattern(groups=("driver",)), "fail")), None),
        (mishap(group="worker"), policy((FailurePattern(groups=("driver",)), "fail")), True),
        (mishap(log="NCCL timeout"), policy((FailurePattern(log_contains="NCCL"), "ignore-count")), False),
        (mishap(log=""), policy((FailurePattern(log_contains="NCCL"), "ignore-count")), True),
        # Everything that a pattern says has to hold; and the first rule decides.
        (mishap(group="driver"), policy((FailurePattern(exit_codes=(2,), groups=("driver",)), "fail")), True),
        (mishap(), policy((FailurePattern(exit_codes=(1,)), "fail"), (FailurePattern(kinds=("exit",)), "retry")), None),
    ],
)
def test_what_follows(seen: Mishap, by: RetryPolicy, counts: bool | None) -> None:
    kept = retry_of(JOB, seen, (), by)
    assert (None if kept is None else kept.counts) == counts


def failed(attempt: int, ago_ms: int, counts: bool = True) -> Failure:
    return Failure(attempt, "exit", NOW.after(-ago_ms), NOW.after(-ago_ms), counts)


def test_failures_that_count_are_counted_and_no_others() -> None:
    before = tuple(failed(attempt, 1_000, counts=attempt > 2) for attempt in range(1, 5))
    assert retry_of(JOB, mishap(), before, policy(most=3)) is not None
    assert retry_of(JOB, mishap(), before, policy(most=2)) is None
    assert retry_of(JOB, mishap("node", None), before, policy(most=2)) is not None


def test_rests_double_up_to_the_longest() -> None:
    backoff = Backoff(jitter=0.0)
    rests = [rest_before(JOB, 1, row, backoff).seconds for row in range(8)]
    assert rests == [10, 20, 40, 80, 160, 320, 600, 600]


def test_after_a_long_good_time_the_row_begins_anew() -> None:
    backoff = Backoff()
    long = backoff.max + QUIET
    assert in_a_row((failed(1, 3_000), failed(2, 1_000)), NOW, backoff) == 2
    assert in_a_row((failed(1, long + 2_000), failed(2, 1_000)), NOW, backoff) == 1
    assert in_a_row((failed(1, 2 * long), failed(2, long + 1)), NOW, backoff) == 0


BACKOFFS = st.builds(
    Backoff,
    st.integers(1, 10**7).map(Duration),
    st.floats(1, 10),
    st.integers(10**7, 10**9).map(Duration),
    st.floats(0, 1),
)


@given(BACKOFFS, st.integers(1, 10**6), st.integers(0, 1_000), st.from_regex("[a-z]{1,20}", fullmatch=True))
def test_a_rest_keeps_its_bounds_and_is_always_the_same(backoff: Backoff, attempt: int, row: int, job: str) -> None:
    rest = rest_before(JobName(job), attempt, row, backoff)
    even = float(backoff.initial)
    for _ in range(row):
        even = min(backoff.max, even * backoff.factor)
    assert even * (1 - backoff.jitter) - 1 <= rest <= even * (1 + backoff.jitter) + 1
    assert rest == rest_before(JobName(job), attempt, row, backoff)


def test_jobs_that_failed_together_begin_apart() -> None:
    assert len({rest_before(JobName(f"job-{number}"), 1, 0, Backoff()) for number in range(20)}) > 15


KINDS: list[FailureKind] = ["exit", "signal", "out-of-memory", "node", "gpu", "launch", "time-limit"]


@given(
    st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 255), st.integers(1, 10**8)), max_size=30),
    st.integers(0, 5),
    st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from(["retry", "fail", "ignore-count"])), max_size=4),
)
def test_a_job_never_has_more_counted_retries_than_it_may(
    history: list[tuple[FailureKind, int, int]], most: int, rules: list[tuple[FailureKind, RetryAction]]
) -> None:
    by = policy(*((FailurePattern(kinds=(kind,)), action) for kind, action in rules if kind != "stuck"), most=most)
    kept: tuple[Failure, ...] = ()
    at = NOW
    for number, (kind, code, later) in enumerate(history, start=1):
        at = at.after(later)
        seen = Mishap(number, kind, at, "", "worker", code)
        failure = retry_of(JOB, seen, kept, by)
        assert failure == retry_of(JOB, seen, kept, by)
        if failure is None:
            break
        assert failure.not_before > failure.at == at
        kept = (*kept, failure)
    assert sum(failure.counts for failure in kept) <= most
