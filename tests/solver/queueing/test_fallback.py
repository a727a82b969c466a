"""Waiting for a first GPU type, for every world: nobody is early outside a guarantee, and patience of nothing changes nothing."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given

from solver.checker.check import violations
from solver.milp.highs import optimise
from solver.model.cluster import DeviceId, GpuType, NodeName
from solver.model.quantities import Duration, Instant
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, QueueName, TaskPlacement
from solver.plan.plan import Bind, Plan, Waits
from solver.plan.reasons import FallbackLater
from solver.policy.policy import Policy, PriorityClass, Queue, SchedulingPolicy, policy_of
from solver.round.solve import solve
from solver.simulation.replay import Replay
from solver.simulation.trace import TraceJob
from tests.drawn import worlds
from tests.solver.worlds import HOUR_MS, TYPES, job, node, policies, quota_of, snapshots

many = worlds(100)
NODES = (node("h1", 8), node("a1", 8, "A100"), node("a2", 8, "A100"))


def with_patience(snapshot: Snapshot, after: Duration | None) -> Snapshot:
    """The world, in which every pending job waits for so long."""
    jobs = tuple(
        msgspec.structs.replace(known, spec=msgspec.structs.replace(known.spec, fallback_after=after))
        for known in snapshot.jobs
    )
    return msgspec.structs.replace(snapshot, jobs=jobs)


@many
@given(snapshots(elastic=True), policies())
def test_endless_patience_breaks_no_rule_and_is_told(snapshot: Snapshot, policy: Policy) -> None:
    patient = with_patience(snapshot, Duration(10_000 * HOUR_MS))
    for optimiser in (None, optimise):
        plan = solve(patient, policy, optimiser)
        assert violations(patient, policy, plan) == ()
        for verdict in plan.verdicts:
            for reason in verdict.reasons if isinstance(verdict, Waits) else ():
                if isinstance(reason, FallbackLater):
                    assert reason.until > patient.time
                    assert reason.first != reason.then


@many
@given(snapshots(), policies())
def test_patience_that_is_over_is_none(snapshot: Snapshot, policy: Policy) -> None:
    over, none = (solve(with_patience(snapshot, after), policy, None) for after in (Duration(1), Duration(0)))
    assert over.steps == none.steps


@pytest.mark.parametrize(
    ("job_says", "class_says", "policy_says", "starts"),
    [
        (None, None, 0, True),
        (None, None, 2, False),
        (None, 2, 0, False),
        (None, 0, 2, True),
        (0, 2, 2, True),
        (2, 0, 0, False),
        (1, 9, 9, True),
    ],
)
def test_the_job_says_then_its_class_then_the_policy(
    job_says: int | None, class_says: int | None, policy_says: int, starts: bool
) -> None:
    def hours(count: int | None) -> Duration | None:
        return None if count is None else Duration(count * HOUR_MS)

    snapshot = world(hours(job_says))
    known = PriorityClass("known", fallback_after=hours(class_says))
    policy = policy_for(known, hours(policy_says) or Duration(0))
    plan = solve(snapshot, policy, optimise)
    assert bool(binds(plan)) == starts
    assert violations(snapshot, policy, plan) == ()


def test_the_checker_finds_who_is_early() -> None:
    policy = policy_for(PriorityClass("known"), Duration(0))
    snapshot, patient = world(Duration(0)), world(Duration(2 * HOUR_MS))
    plan = msgspec.structs.replace(solve(snapshot, policy, None), snapshot=patient.digest)
    assert [(found.rule, found.subject) for found in violations(patient, policy, plan)] == [("fallback", "waits")]


def test_a_replay_holds_a_round_when_a_type_opens() -> None:
    policy = policy_for(PriorityClass("known"), Duration(0))
    blocking, waiting = job("first", "q", 1, 8, types=["H100"]), waits(Duration(2 * HOUR_MS))
    late = msgspec.structs.replace(waiting, submitted_at=Instant(1))
    replay = Replay(NODES, policy, None, Duration(1000))
    trace = [TraceJob(blocking, Duration(9 * HOUR_MS)), TraceJob(late, Duration(HOUR_MS))]
    for held in replay.rounds(trace, Instant(20 * HOUR_MS)):
        assert violations(held.snapshot, policy, held.plan) == ()
    assert replay.runs[late.name].started_at == 1 + 2 * HOUR_MS


def waits(after: Duration | None) -> Job:
    """A job that would rather have an H100."""
    made = job("waits", "q", 1, 8, types=TYPES, priority_class="known")
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, fallback_after=after))


def world(after: Duration | None) -> Snapshot:
    """The job has waited for an hour, and somebody has the only node with H100."""
    devices = tuple(DeviceId(f"h1/{index}") for index in range(8))
    held = msgspec.structs.replace(
        job("holds", "q", 1, 8),
        phase="running",
        attempt=1,
        placement=(TaskPlacement("worker", 0, NodeName("h1"), devices),),
    )
    return snapshot_of(Instant(HOUR_MS), NODES, [held, waits(after)])


def policy_for(known: PriorityClass, after: Duration) -> Policy:
    """One queue that is guaranteed nothing."""
    queue = Queue(QueueName("q"), quota=tuple(quota_of(GpuType(name), 0) for name in TYPES))
    return policy_of((queue,), (known,), SchedulingPolicy(fallback_after=after))


def binds(plan: Plan) -> list[str]:
    """Who starts."""
    return [step.job for step in plan.steps if isinstance(step, Bind)]
