"""Jobs that take turns: short replays whose turns can be followed by hand, and the bound on how long anybody has nothing."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.checker.check import violations
from solver.model.quantities import Duration, Instant
from solver.model.workload import Checkpoint, JobName, QueueName
from solver.plan.plan import Evict, Yields
from solver.policy.harm import Evictions, Protection
from solver.policy.ordering import OrderBy, Ordering, Turns
from solver.policy.policy import Policy, PriorityClass, Queue, SchedulingPolicy, policy_of
from solver.simulation.replay import Replay
from solver.simulation.trace import ReplayedRound, TraceJob
from tests.drawn import worlds
from tests.solver.worlds import job, node

MINUTE = 60_000
MIN_RUNTIME, RESTART = 5, 1


def policy(by: OrderBy = "gittins", max_wait: int = 10_000) -> Policy:
    ordering = Ordering(by, turns=Turns(Duration(max_wait * MINUTE)))
    protection = Protection(min_runtime=Duration(MIN_RUNTIME * MINUTE))
    scheduling = SchedulingPolicy("c", evictions=Evictions(restart_cost=Duration(RESTART * MINUTE)))
    return policy_of(
        (Queue(QueueName("q"), ordering=ordering),), (PriorityClass("c", protection=protection),), scheduling
    )


def trace_job(name: str, gpus: int, submitted: int, minutes: int, known: bool = False) -> TraceJob:
    made = job(name, "q", 1, gpus, submitted=submitted * MINUTE)
    limit = Duration(minutes * MINUTE) if known else None
    spec = msgspec.structs.replace(made.spec, checkpoint=Checkpoint(Duration(1)), time_limit=limit)
    return TraceJob(msgspec.structs.replace(made, spec=spec), Duration(minutes * MINUTE))


def replayed(policy: Policy, *jobs: TraceJob) -> tuple[Replay, list[ReplayedRound]]:
    held = Replay((node("n1", 4),), policy, None, Duration(1000), Duration(MINUTE))
    rounds = list(held.rounds(jobs, Instant(10**12)))
    for decided in rounds:
        assert violations(decided.snapshot, policy, decided.plan) == ()
    return held, rounds


def ends(held: Replay) -> dict[str, float]:
    """Minutes, to the tenth: binding what was promised takes a round of a second."""
    return {str(name): round((run.ended_at or 0) / MINUTE, 1) for name, run in held.runs.items()}


def test_the_least_remaining_time_goes_first_but_not_before_the_minimum_runtime() -> None:
    """The long one runs for its 5 minutes; then the short one has 10, and the long one its other 55 and the restart."""
    held, rounds = replayed(
        policy("shortest"), trace_job("long", 4, 0, 60, known=True), trace_job("short", 4, 1, 10, known=True)
    )
    assert ends(held) == {"short": 15.0, "long": 71.0}
    evictions = [
        (r.snapshot.time / MINUTE, s.job, s.means) for r in rounds for s in r.plan.steps if isinstance(s, Evict)
    ]
    assert evictions == [(5.0, "long", "turn")]
    said = [str(verdict) for r in rounds for verdict in r.plan.verdicts if isinstance(verdict, Yields)]
    assert said == [
        "gives up 4 GPUs for short: in queue q jobs take turns, and it is that of job short; 0.1 GPU-hours are lost"
    ]


def test_nothing_is_gained_by_a_turn_that_costs_more_than_it_saves() -> None:
    """Ten minutes are left of the one, ten has the other, and a restart on top."""
    held, _ = replayed(
        policy("shortest"), trace_job("one", 4, 0, 20, known=True), trace_job("two", 4, 10, 10, known=True)
    )
    assert ends(held) == {"one": 20.0, "two": 30.0}


def test_who_is_expected_to_end_soon_goes_first_though_nobody_knows() -> None:
    """Of 1-GPU jobs all have ended in 2 minutes, of 4-GPU jobs one runs for long: the next small ones are let in."""
    small = [trace_job(f"s{n}", 1, 10 * n, 2) for n in range(12)]
    held, _ = replayed(policy(), *small, trace_job("large", 4, 115, 600), trace_job("last", 1, 130, 2))
    assert ends(held)["last"] == 132.0
    assert held.runs[JobName("large")].evictions == 1


def test_what_runs_stays_without_turns() -> None:
    queue = Queue(QueueName("q"), ordering=Ordering("shortest"))
    held, _ = replayed(
        policy_of((queue,)), trace_job("long", 4, 0, 60, known=True), trace_job("short", 4, 1, 10, known=True)
    )
    assert ends(held) == {"long": 60.0, "short": 70.0}


def test_a_gang_is_not_kept_out_by_small_ones_that_come_after_it() -> None:
    """Once it is the gang's turn no small one starts, and those that run go when their minimum is over."""
    small = [trace_job(f"s{n}", 1, n, 50, known=True) for n in range(10)]
    held, _ = replayed(policy("shortest"), *small, trace_job("gang", 4, 12, 20, known=True))
    assert held.runs[JobName("gang")].longest_wait_ms <= (MIN_RUNTIME + 1) * MINUTE


MAX_WAIT = 60
traces = st.lists(
    st.tuples(st.sampled_from([1, 2, 4]), st.integers(0, 300), st.integers(1, 400)), min_size=2, max_size=7
)


@pytest.mark.long
@worlds(8)
@given(traces, st.sampled_from(["gittins", "shortest", "least-served"]))
def test_nobody_has_nothing_for_much_longer_than_max_wait(jobs: list[tuple[int, int, int]], by: OrderBy) -> None:
    """The wait ends once those ahead, which have waited for as long, and those that are protected have had their minimum."""
    known = [
        trace_job(f"j{n}", gpus, submitted, minutes, known=True) for n, (gpus, submitted, minutes) in enumerate(jobs)
    ]
    held, _ = replayed(policy(by, MAX_WAIT), *known)
    bound = MAX_WAIT + 1 + len(jobs) * (MIN_RUNTIME + 1)
    assert all(run.ended_at is not None for run in held.runs.values())
    assert max(run.longest_wait_ms for run in held.runs.values()) <= bound * MINUTE
