"""The rounds to come after a live snapshot: worked out by hand where they are few, and lawful in whatever world they begin."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from solver.checker.check import violations
from solver.model.cluster import DeviceId, GpuType
from solver.model.inflight import DurationQuantile, InFlight, Intent
from solver.model.quantities import Duration, Instant, MilliGpu
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName, QueueName, TaskPlacement
from solver.plan.plan import Plan
from solver.policy.harm import Convergence, Evictions
from solver.policy.policy import Policy, Queue, SchedulingPolicy, policy_of
from solver.policy.tree import QuotaLine
from solver.round.solve import solve
from solver.simulation import projection as played
from solver.simulation.projection import Projection, grid_of, project
from tests.solver.aftermath import applied
from tests.solver.worlds import job, node, policies, quota_of, snapshots

HOUR = 3_600_000
MINUTE = 60_000
NOW = Instant(100 * HOUR)


def running(
    name: str, queue: str, on: str, gpus: int, *, ago_h: int = 1, limit_h: int | None = None, at: int = 0
) -> Job:
    """One task on the GPUs of a node, from number `at` on."""
    devices = tuple(DeviceId(f"{on}/{index}") for index in range(at, at + gpus))
    placed = (TaskPlacement("worker", 0, node(on, 0).name, devices),)
    limit = None if limit_h is None else Duration(limit_h * HOUR)
    since = Instant(NOW - ago_h * HOUR)
    asked = job(name, queue, 1, gpus, submitted=since)
    return msgspec.structs.replace(
        asked, phase="running", attempt=1, started_at=since, placement=placed, time_limit=limit
    )


def waiting(name: str, queue: str, gpus: int, limit_h: int = 10) -> Job:
    made = job(name, queue, 1, gpus, submitted=NOW - HOUR)
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, time_limit=Duration(limit_h * HOUR)))


def went_on(snapshot: Snapshot, policy: Policy) -> Projection:
    return project(snapshot, solve(snapshot, policy, None), policy, "c0ffee")


def hours(result: Projection) -> dict[str, float]:
    """From the snapshot to each start."""
    return {name: (at - NOW) / HOUR for name, at in result.starts.items()}


POLICY = policy_of((Queue(QueueName("a")), Queue(QueueName("b"))))


@pytest.mark.parametrize("jobs_small", [32, 0])
def test_who_waits_starts_when_what_runs_ends(monkeypatch: pytest.MonkeyPatch, jobs_small: int) -> None:
    """At its limit, as history has it, or never; who starts ahead ends too. On a grid an eighth late at most."""
    monkeypatch.setattr(played, "JOBS_SMALL", jobs_small)
    jobs = [
        running("limited", "a", "n1", 8, ago_h=1, limit_h=3),
        running("expected", "b", "n2", 8, ago_h=1),
        running("endless", "a", "n3", 8),
        *(waiting(f"w{number}", "a", 8) for number in range(3)),
        waiting("too-large", "a", 9),
    ]
    history = InFlight(durations=(DurationQuantile(QueueName("b"), "", 0.9, Duration(6 * HOUR)),))
    result = went_on(snapshot_of(NOW, [node(name, 8) for name in ("n1", "n2", "n3")], jobs, history), POLICY)
    exact = {"w0": 2.0, "w1": 5.0, "w2": 12.0}
    assert hours(result).keys() == exact.keys()
    late = {name: at / exact[name] for name, at in hours(result).items()}
    assert all(1 <= part <= (1.001 if jobs_small else 9 / 8) for part in late.values()), late
    assert (result.endless, result.complete, result.until) == (1, True, NOW.after(Duration(7 * 24 * HOUR)))


@pytest.mark.parametrize("jobs_small", [32, 0])
def test_a_lowered_limit_is_kept_at_its_deadline_by_who_leaves_for_it(
    monkeypatch: pytest.MonkeyPatch, jobs_small: int
) -> None:
    monkeypatch.setattr(played, "JOBS_SMALL", jobs_small)
    convergence = Convergence(Duration(4 * HOUR), "preemptible")
    a = Queue(QueueName("a"), quota=(quota_of("H100", 0, 8),), convergence=convergence)
    jobs = [
        running("long", "a", "n1", 8, limit_h=90),
        running("short", "a", "n2", 4, ago_h=2, limit_h=4),
        running("least", "a", "n2", 4, at=4, limit_h=90),
    ]
    result = went_on(snapshot_of(NOW, [node("n1", 8), node("n2", 8)], jobs), policy_of((a, Queue(QueueName("b")))))
    line = QuotaLine(QueueName("a"), GpuType("H100"))
    assert result.over == {line: MilliGpu.gpus(8)}
    assert [clock.deadline for clock in result.clocks] == [NOW + 4 * HOUR]
    # What ends by itself before the deadline is not evicted for it.
    assert [(known.at, known.step.job, known.step.means) for known in result.given_up] == [
        (NOW + 4 * HOUR, "least", "converge")
    ]
    assert result.kept == {line: NOW + 4 * HOUR}


def test_what_was_asked_for_has_come_true_before_the_rounds_to_come() -> None:
    """Who is being evicted waits again, who was stopped for good is gone, who is starting runs from when it was asked to."""
    jobs = [
        running("evicted", "a", "n1", 8, limit_h=9),
        running("stopped", "a", "n2", 8, limit_h=9),
        msgspec.structs.replace(running("starting", "a", "n3", 8, limit_h=2), started_at=None, phase="starting"),
    ]
    asked, until = Instant(NOW - MINUTE), Instant(NOW + 4 * MINUTE)
    intents = (
        Intent("stop", JobName("evicted"), 1, asked, until, purpose="evict"),
        Intent("stop", JobName("stopped"), 1, asked, until, purpose="end"),
        Intent("start", JobName("starting"), 1, asked, until),
    )
    world = snapshot_of(NOW, [node(name, 8) for name in ("n1", "n2", "n3")], jobs, InFlight(intents=intents))
    after = {str(known.name): known for known in went_on(world, POLICY).after.jobs}
    assert {name: known.phase for name, known in after.items()} == {"evicted": "pending", "starting": "running"}
    assert after["starting"].started_at == asked
    assert after["evicted"].evicted_at == (asked,)


def test_the_work_is_bounded_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(played, "ROUNDS_MAX", 2)
    jobs = [running("first", "a", "n1", 8, limit_h=3), *(waiting(f"w{number}", "a", 8, 1) for number in range(5))]
    result = went_on(snapshot_of(NOW, [node("n1", 8)], jobs), POLICY)
    assert (result.rounds, result.complete, len(result.starts)) == (2, False, 2)
    assert result.until == max(result.starts.values())


def test_the_grid_reaches_the_horizon_and_no_step_is_longer_than_an_eighth_of_what_lies_behind() -> None:
    grid = list(grid_of(NOW, Instant(NOW + 500 * HOUR)))
    assert (grid[0], grid[-1]) == (NOW + MINUTE, NOW + 500 * HOUR)
    assert all((later - NOW) / (earlier - NOW) <= 1.1251 for earlier, later in pairwise(grid))


@pytest.mark.parametrize("jobs_small", [32, 0])
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(snapshots(elastic=True, held_one_in=1), policies(), st.booleans())
def test_every_round_to_come_is_lawful(
    monkeypatch: pytest.MonkeyPatch, jobs_small: int, snapshot: Snapshot, policy: Policy, asked: bool
) -> None:
    """The checker has nothing to say against any round that is held, and nobody starts before the snapshot.

    `asked`: what the round before has asked for is still in flight.
    """
    snapshot = applied(snapshot, solve(snapshot, policy, None)) if asked else snapshot
    held: list[Instant] = []

    def checked(world: Snapshot, under: Policy, optimiser: None) -> Plan:
        plan = solve(world, under, optimiser)
        assert violations(world, under, plan) == ()
        held.append(world.time)
        return plan

    monkeypatch.setattr(played, "solve", checked)
    monkeypatch.setattr(played, "JOBS_SMALL", jobs_small)
    monkeypatch.setattr(played, "ROUNDS_MAX", 20)
    scheduling = msgspec.structs.replace(
        policy.scheduling, convergence=Convergence(Duration(HOUR), "all"), evictions=Evictions(per_round=1)
    )
    result = went_on(snapshot, msgspec.structs.replace(policy, scheduling=scheduling))
    assert held == sorted(set(held))
    assert all(at >= snapshot.time for at in result.starts.values())
    assert result.starts.keys() <= {known.name for known in snapshot.pending}
    assert result.kept.keys() <= result.over.keys()
    assert SchedulingPolicy().eta_horizon == result.until - snapshot.time or not result.complete
