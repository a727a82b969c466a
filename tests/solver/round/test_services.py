"""To a round a service is an elastic gang whose least is one replica; what differs is time limits and what an eviction costs."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given

from solver.checker.check import violations
from solver.milp.highs import optimise
from solver.model.cluster import GpuType
from solver.model.document import decode, encode
from solver.model.quantities import Duration, Instant, MilliGpu
from solver.model.shape import Shape
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName, JobSpec, JobType, QueueName, TaskGroup
from solver.plan.plan import Bind
from solver.policy.policy import Policy, PriorityClass, Queue, policy_of
from solver.quota.victims import Holder, lost_gpu_s
from solver.round.solve import solve
from tests.drawn import worlds
from tests.solver.worlds import node, policies, snapshots

HOUR = Duration(3_600_000)


def pending_as(snapshot: Snapshot, kind: JobType, least: int | None) -> Snapshot:
    """The same world, whose waiting jobs of one group are of a type, and start with so few tasks."""

    def changed(known: Job) -> Job:
        if known.phase != "pending" or len(known.spec.task_groups) > 1:
            return known
        groups = tuple(msgspec.structs.replace(group, min_replicas=least) for group in known.spec.task_groups)
        return msgspec.structs.replace(known, spec=msgspec.structs.replace(known.spec, type=kind, task_groups=groups))

    return snapshot_of(snapshot.time, snapshot.nodes, map(changed, snapshot.jobs), snapshot.in_flight)


@pytest.mark.thorough
@worlds(100)
@given(snapshots(), policies())
def test_a_service_is_served_like_a_gang_that_starts_with_one_task(snapshot: Snapshot, policy: Policy) -> None:
    no_limits = tuple(
        msgspec.structs.replace(c, default_time_limit=None, placement="pack") for c in policy.priority_classes
    )
    policy = msgspec.structs.replace(policy, priority_classes=no_limits)
    as_service = solve(pending_as(snapshot, "service", None), policy, optimise)
    as_gang = solve(pending_as(snapshot, "gang", 1), policy, optimise)
    assert (as_service.steps, as_service.verdicts) == (as_gang.steps, as_gang.verdicts)


@pytest.mark.parametrize(
    ("kind", "own", "of_class", "limit"),
    [
        ("gang", None, None, None),
        ("gang", None, 2 * HOUR, 2 * HOUR),
        ("service", None, 2 * HOUR, None),
        ("service", HOUR, 2 * HOUR, HOUR),
        ("interactive", None, None, 8 * HOUR),
        ("interactive", None, 2 * HOUR, 2 * HOUR),
        ("interactive", 9 * HOUR, 2 * HOUR, 9 * HOUR),
    ],
)
def test_the_limit_of_each_type(kind: JobType, own: int | None, of_class: int | None, limit: int | None) -> None:
    policy = policy_of(
        (Queue(QueueName("q")),),
        (PriorityClass("c", default_time_limit=None if of_class is None else Duration(of_class)),),
    )
    limit_of_its_own = None if own is None else Duration(own)
    spec = JobSpec(QueueName("q"), (TaskGroup("worker", 1, Shape(1)),), "c", time_limit=limit_of_its_own, type=kind)
    world = snapshot_of(Instant(0), [node("n1", 1, "H100")], [Job(JobName("job"), Instant(0), spec)])
    plan = solve(world, policy, None)
    (bind,) = plan.steps
    assert isinstance(bind, Bind)
    assert bind.time_limit == limit
    assert violations(world, policy, plan) == ()
    other = msgspec.structs.replace(bind, time_limit=Duration(7 * HOUR))
    found = violations(world, policy, msgspec.structs.replace(plan, steps=(other,)))
    assert "S2" in {violation.rule for violation in found}


@pytest.mark.parametrize(
    ("kind", "own", "of_class", "limit"),
    [
        ("gang", None, 2 * HOUR, None),
        ("service", None, 2 * HOUR, None),
        ("interactive", None, None, None),
        ("interactive", None, 2 * HOUR, 2 * HOUR),
        ("interactive", HOUR, 2 * HOUR, HOUR),
    ],
)
def test_only_interactive_jobs_have_an_idle_limit(
    kind: JobType, own: int | None, of_class: int | None, limit: int | None
) -> None:
    allowed = None if of_class is None else Duration(of_class)
    policy = policy_of((Queue(QueueName("q")),), (PriorityClass("c", idle_limit=allowed),))
    limit_of_its_own = None if own is None else Duration(own)
    spec = JobSpec(QueueName("q"), (TaskGroup("worker", 1, Shape(1)),), "c", idle_limit=limit_of_its_own, type=kind)
    world = snapshot_of(Instant(0), [node("n1", 1, "H100")], [Job(JobName("job"), Instant(0), spec)])
    plan = solve(world, policy, None)
    (bind,) = plan.steps
    assert isinstance(bind, Bind)
    assert bind.idle_limit == limit
    assert violations(world, policy, plan) == ()
    other = msgspec.structs.replace(bind, idle_limit=Duration(7 * HOUR))
    found = violations(world, policy, msgspec.structs.replace(plan, steps=(other,)))
    assert "S2" in {violation.rule for violation in found}


def test_a_service_reads_the_same_however_often_it_is_written() -> None:
    spec = JobSpec(QueueName("q"), (TaskGroup("worker", 3, Shape(1)),), type="service")
    assert spec.task_groups[0].least == 1
    assert decode(encode(spec), JobSpec) == spec
    changed = msgspec.structs.replace(spec, task_groups=(TaskGroup("worker", 5, Shape(1)),))
    assert changed.task_groups[0].least == 1


@pytest.mark.parametrize(
    ("kind", "lost_s"), [("gang", 2 * (3_600 + 60)), ("interactive", 2 * (3_600 + 60)), ("service", 2 * 60)]
)
def test_an_eviction_costs_a_service_its_start_and_no_work(kind: JobType, lost_s: int) -> None:
    spec = JobSpec(QueueName("q"), (TaskGroup("worker", 2, Shape(1)),), type=kind)
    runs = Job(JobName("job"), Instant(0), spec, phase="running", attempt=1, started_at=Instant(0))
    holder = Holder(runs, {GpuType("H100"): MilliGpu.gpus(2)}, PriorityClass(""))
    assert lost_gpu_s(holder, Instant(HOUR), Duration(60_000)) == lost_s
