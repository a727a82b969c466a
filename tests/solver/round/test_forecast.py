"""A forecast is what happens, where every job runs exactly to its limit; and what it is not, where one doesn't."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.model.cluster import DeviceId, NodeName
from solver.model.quantities import Duration, Instant
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName, QueueName, TaskPlacement
from solver.plan.estimates import AnyEstimate, EarliestStart
from solver.plan.plan import Grow, Waits
from solver.plan.reasons import HeldReason
from solver.policy.ordering import Ordering
from solver.policy.policy import Policy, Queue, Reservations, SchedulingPolicy, policy_of
from solver.round.solve import solve
from solver.simulation.replay import Replay
from solver.simulation.trace import ReplayedRound, TraceJob
from tests.drawn import worlds
from tests.solver.laws.worlds import MINUTE_MS, world_of
from tests.solver.worlds import HOUR_MS, job, node, policies, snapshots

HOUR = 3_600_000
FAR = Instant(1_000 * HOUR)


def limited(one: Job, hours: int) -> Job:
    """A pending job with a time limit of its own."""
    spec = msgspec.structs.replace(one.spec, time_limit=Duration(hours * HOUR))
    return msgspec.structs.replace(one, spec=spec, submitted_at=Instant(0))


def running(name: str, on: str, gpus: int, hours: int) -> Job:
    """A job that has just begun, with a limit where `hours` is not 0."""
    limit = Duration(hours * HOUR) if hours else None
    devices = tuple(DeviceId(f"{on}/{index}") for index in range(gpus))
    placement = (TaskPlacement("worker", 0, NodeName(on), devices),)
    return msgspec.structs.replace(
        job(name, "a", 1, gpus),
        phase="running",
        attempt=1,
        started_at=Instant(0),
        placement=placement,
        time_limit=limit,
    )


def forecasts(snapshot: Snapshot, policy: Policy) -> dict[str, AnyEstimate | None]:
    """What one greedy round says of every job that waits."""
    verdicts = solve(snapshot, policy, None).verdicts
    return {verdict.job: verdict.estimate for verdict in verdicts if isinstance(verdict, Waits)}


def replayed(held: Replay, jobs: list[Job], hours: dict[JobName, int] | None = None) -> list[ReplayedRound]:
    """Every round of a replay in which jobs run for their limits, or for other hours where those are said."""
    lasts = {one.name: one.spec.time_limit or Duration(0) for one in jobs}
    lasts |= {name: Duration(said * HOUR) for name, said in (hours or {}).items()}
    return list(held.rounds([TraceJob(one, lasts[one.name]) for one in jobs], FAR))


def foreseeable(policy: Policy) -> Policy:
    """The same policy where nobody may be evicted and nothing is reserved: a forecast does not foresee for whom that will be.

    Nor who comes first where that changes with what jobs have run.
    """
    limits = msgspec.structs.replace(policy.scheduling.evictions, per_round=0)
    never = Duration(1_000_000 * HOUR)
    scheduling = msgspec.structs.replace(
        policy.scheduling, evictions=limits, reclaim_within=never, reservations=Reservations(0)
    )
    queues = tuple(
        msgspec.structs.replace(queue, ordering=Ordering("fifo"))
        if queue.ordering and queue.ordering.by_cost
        else queue
        for queue in policy.queues
    )
    return msgspec.structs.replace(policy, scheduling=scheduling, queues=queues)


@pytest.mark.thorough
@worlds(200)
@given(snapshots(nodes_max=4, jobs_max=12), policies().map(foreseeable), st.data())
def test_a_forecast_is_what_happens_where_every_job_runs_to_its_limit(
    snapshot: Snapshot, policy: Policy, data: st.DataObject
) -> None:
    """Equal, and so in particular never later: every round ahead is the round that will be held.

    True of greedy rounds, all at once and without arrivals. A program may serve others in between, so that a job
    starts earlier or later than forecast; and an end that comes early may too (see below).
    """
    jobs = [limited(one, data.draw(st.integers(1, 4))) for one in snapshot.pending]
    held = Replay(snapshot.nodes, policy, None, Duration(1))
    rounds = replayed(held, jobs)
    for decided in rounds:
        for verdict in decided.plan.verdicts:
            if isinstance(verdict, Waits) and any(isinstance(reason, HeldReason) for reason in verdict.reasons):
                assert verdict.estimate is None
            elif isinstance(verdict, Waits):
                assert isinstance(verdict.estimate, EarliestStart)
                assert held.runs[verdict.job].started_at == verdict.estimate.at


def test_the_property_sees_jobs_that_wait_for_each_other() -> None:
    held = Replay((node("n1", 2),), policy_of((Queue(QueueName("a")),)), None, Duration(1))
    jobs = [limited(job(f"j{number}", "a", 1, 2), 1 + number) for number in range(4)]
    rounds = replayed(held, jobs)
    assert len(rounds) == 4
    expected = [0, 1, 3, 6]
    assert [held.runs[one.name].started_at for one in jobs] == [hour * HOUR for hour in expected]
    told = {verdict.job: verdict.estimate for verdict in rounds[0].plan.verdicts if isinstance(verdict, Waits)}
    assert [told[one.name] for one in jobs[1:]] == [EarliestStart(Instant(hour * HOUR)) for hour in expected[1:]]


def test_an_early_end_can_make_a_job_start_later_than_forecast() -> None:
    """The counterexample to "never later": list scheduling has anomalies (R. L. Graham, 1966).

    The pair would start at hour 2, when both runners end at their limits. One ends after an hour instead, `small` takes its
    node for five hours, and the pair, for which nothing is reserved, waits for that.
    """
    policy = policy_of((Queue(QueueName("a")),), scheduling=SchedulingPolicy(reservations=Reservations(0)))
    held = Replay((node("n1", 2), node("n2", 2)), policy, None, Duration(1))
    jobs = [
        limited(job("x1", "a", 1, 2), 2),
        limited(job("x2", "a", 1, 2), 2),
        limited(job("y-pair", "a", 2, 2), 1),
        limited(job("z-small", "a", 1, 1), 5),
    ]
    rounds = replayed(held, jobs, {JobName("x1"): 1})
    waits = {verdict.job: verdict for verdict in rounds[0].plan.verdicts if isinstance(verdict, Waits)}
    assert waits[JobName("y-pair")].estimate == EarliestStart(Instant(2 * HOUR))
    assert held.runs[JobName("y-pair")].started_at == 6 * HOUR


def test_only_the_first_of_the_order_are_forecast_and_work_is_bounded() -> None:
    nodes = tuple(node(f"n{number:03}", 1) for number in range(500))
    runners = [running(f"r{number:03}", f"n{number:03}", 1, 1 + number % 100) for number in range(500)]
    pending = [job(f"w{number:02}", "a", 1, 1) for number in range(30)]
    policy = policy_of((Queue(QueueName("a")),), scheduling=SchedulingPolicy(estimated_jobs=20))
    told = forecasts(snapshot_of(Instant(HOUR // 2), nodes, [*runners, *pending]), policy)
    assert sum(estimate is not None for estimate in told.values()) == 20
    assert all(told[f"w{number:02}"] for number in range(20)), "the first in the order"
    # Five end in each hour and every third end is a round, so that hour 1 serves five and so does each after it.
    starts = [told[f"w{number:02}"].at for number in range(20)]  # type: ignore[union-attr]
    assert starts == [Instant((1 + number // 5) * HOUR) for number in range(20)]


def test_forecasts_of_a_world_that_stands_still_stay_the_same() -> None:
    """Otherwise every pass would have something new to say, and be recorded."""
    jobs = [running("r", "n1", 2, 5), job("w1", "a", 1, 2), job("w2", "a", 1, 1)]
    jobs[1] = limited(jobs[1], 3)
    policy = policy_of((Queue(QueueName("a")),))
    told = [forecasts(snapshot_of(Instant(minute), (node("n1", 2),), jobs), policy) for minute in (1, HOUR, 2 * HOUR)]
    assert (
        told[0]
        == told[1]
        == told[2]
        == {"w1": EarliestStart(Instant(5 * HOUR)), "w2": EarliestStart(Instant(8 * HOUR))}
    )


def test_what_a_gang_grows_by_inside_its_guarantee_is_counted_once() -> None:
    world = world_of(
        "nodes n1=4; queue a 3; queue b 0; run e a 1-3x1@n1 for 9m cpu=20; wait w0 b 3 for 8m; wait w1 b 4 for 7m cpu=80"
    )
    hour, scheduling = Duration(HOUR_MS), world.policy.scheduling

    def limited(job: Job) -> Job:
        spec = msgspec.structs.replace(job.spec, time_limit=hour)
        return msgspec.structs.replace(job, spec=spec, time_limit=hour if job.placement else None)

    snapshot = snapshot_of(world.snapshot.time, world.snapshot.nodes, map(limited, world.snapshot.jobs))
    asking = msgspec.structs.replace(scheduling, estimated_jobs=10)
    plan = solve(snapshot, policy_of(world.policy.queues, world.policy.priority_classes, asking), None)
    assert [type(step) for step in plan.steps] == [Grow]
    estimates = {verdict.job: verdict.estimate for verdict in plan.verdicts if isinstance(verdict, Waits)}
    # Once the gang of three has ended, and then the job of three, all cores are free.
    assert estimates[JobName("w1")] == EarliestStart(Instant(2 * HOUR_MS - 9 * MINUTE_MS))
