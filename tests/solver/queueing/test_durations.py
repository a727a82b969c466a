"""What jobs without a limit are expected to run: the quantile of those of their queue and class that have ended."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from solver.model.inflight import Ended
from solver.model.quantities import Duration, Instant, MilliGpu
from solver.model.workload import Job, JobName, JobSpec, JobType, QueueName
from solver.queueing.durations import ENDED_MIN, expected, expected_of, quantiles

A, B = QueueName("a"), QueueName("b")


def ended(queue: QueueName, ran: int, number: int = 0, priority_class: str = "") -> Ended:
    return Ended(queue, MilliGpu(1000), Instant(0), JobName(f"j{number}"), Duration(ran), priority_class)


@given(st.lists(st.integers(1, 1000), min_size=ENDED_MIN), st.floats(0.01, 1.0))
def test_that_part_of_them_had_ended_by_then_and_no_more_than_that(ran: list[int], quantile: float) -> None:
    (found,) = quantiles([ended(A, one, number) for number, one in enumerate(ran)], quantile)
    assert sum(one <= found.duration for one in ran) >= quantile * len(ran)
    assert sum(one < found.duration for one in ran) < quantile * len(ran)


def test_queues_and_classes_are_apart_and_a_few_say_nothing() -> None:
    history = [*(ended(A, 5, n, "batch") for n in range(ENDED_MIN)), *(ended(B, 7, n) for n in range(ENDED_MIN - 1))]
    assert [(one.queue, one.priority_class, one.duration) for one in quantiles(history, 0.9)] == [(A, "batch", 5)]
    assert quantiles(history, 0.0) == ()


def test_services_have_no_end() -> None:
    history = expected(quantiles([ended(A, 5, n) for n in range(ENDED_MIN)], 0.9))

    def job(kind: JobType) -> Job:
        return Job(JobName("j"), Instant(0), JobSpec(A, (), type=kind))

    assert [expected_of(job(kind), history) for kind in ("gang", "interactive", "service")] == [5, 5, None]
