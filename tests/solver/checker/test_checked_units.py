"""What the checker says where several units of one gang leave for a job, or all of it: units that are spread over nodes."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from solver.checker.alarm import findings
from solver.checker.check import violations
from solver.milp.highs import optimise
from solver.model.cluster import DeviceId, NodeName
from solver.model.quantities import Instant, MilliGpu
from solver.model.shape import Shape
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName, JobSpec, QueueName, TaskGroup, TaskPlacement
from solver.plan.plan import Evict, Nominate, Plan, Shrink, Step
from solver.policy.policy import Queue, SchedulingPolicy, policy_of
from solver.round.solve import solve
from tests.solver.worlds import HOUR_MS, job, node, quota_of

POLICY = policy_of(
    (
        Queue(QueueName("owner"), quota=(quota_of("H100", 2),)),
        Queue(QueueName("borrower"), quota=(quota_of("H100", 0),)),
    ),
    (),
    SchedulingPolicy(),
)


def world(gpus: int, units: int) -> Snapshot:
    """A gang has its least on the first node, and each unit of two tasks on both others; a job wants two GPUs of a node."""
    on = ["n1", "n1", *["n2", "n3"] * units]
    placed = tuple(
        TaskPlacement("worker", index, NodeName(name), gpus_of(name, on[: index + 1].count(name))[-1:])
        for index, name in enumerate(on)
    )
    group, began = TaskGroup("worker", len(on), Shape(1), min_replicas=2, replica_step=2), Instant(-HOUR_MS)
    spec = JobSpec(QueueName("borrower"), (group,))
    gang = Job(JobName("gang"), began, spec, "", "running", 1, began, placed)
    nodes = [node("n1", 2), node("n2", gpus), node("n3", gpus)]
    return snapshot_of(Instant(0), nodes, [gang, job("waits", "owner", 1, 2)])


def gpus_of(name: str, count: int) -> tuple[DeviceId, ...]:
    return tuple(DeviceId(f"{name}/{number}") for number in range(count))


def plan_of(snapshot: Snapshot) -> Plan:
    return solve(snapshot, POLICY, optimise)


def told(snapshot: Snapshot, plan: Plan) -> tuple[set[str], set[str]]:
    """The rules that a plan breaks, but for how it is told, and what the alarm tells of it."""
    refused = {found.rule for found in violations(snapshot, POLICY, plan)} - {"verdicts"}
    return refused, {found.rule for found in findings(snapshot, POLICY, plan)}


def with_steps(plan: Plan, change: Callable[[Shrink], Step]) -> Plan:
    """The same plan, by which the gang leaves otherwise."""
    steps = (change(step) if isinstance(step, Shrink) else step for step in plan.steps)
    return msgspec.structs.replace(plan, steps=tuple(steps))


def whole(step: Shrink) -> Step:
    """All of the gang leaves, of which four GPUs of six did."""
    lost = (MilliGpu(6000), step.lost_gpu_s * 6 / 4, step.beneficiary)
    return Evict(step.job, step.attempt, "reclaim", step.grace, *lost)


def test_units_that_are_needed_may_be_more_than_is_gained() -> None:
    snapshot = world(gpus=2, units=2)
    (shrink,) = (step for step in plan_of(snapshot).steps if isinstance(step, Shrink))
    assert (len(shrink.tasks), shrink.gpus) == (4, 4000)
    assert told(snapshot, plan_of(snapshot)) == (set(), set())


def test_a_unit_that_could_stay_is_refused_where_more_leaves_than_is_gained() -> None:
    snapshot = world(gpus=3, units=3)
    plan = plan_of(snapshot)
    assert told(snapshot, plan) == (set(), set())

    def all_units(step: Shrink) -> Step:
        return msgspec.structs.replace(step, tasks=snapshot.jobs[0].placement[2:], gpus=MilliGpu(6000))

    refused, alarm = told(snapshot, with_steps(plan, all_units))
    assert "S13" in refused
    assert "needless" in alarm


def test_a_gang_that_leaves_is_judged_by_all_that_leaves_with_it() -> None:
    snapshot = world(gpus=2, units=2)

    # What it can't do without is on another node than the promise, and the units beside that are there.
    assert told(snapshot, with_steps(plan_of(snapshot), whole)) == (set(), {"needless"})


def test_a_gang_of_which_nothing_is_near_the_promise_leaves_for_nothing() -> None:
    snapshot = world(gpus=2, units=2)

    elsewhere = snapshot_of(snapshot.time, [*snapshot.nodes, node("n4", 2)], snapshot.jobs)
    plan = with_steps(plan_of(snapshot), whole)
    on_free = (
        msgspec.structs.replace(step, tasks=(TaskPlacement("worker", 0, NodeName("n4"), gpus_of("n4", 2)),))
        if isinstance(step, Nominate)
        else step
        for step in plan.steps
    )
    plan = msgspec.structs.replace(plan, steps=tuple(on_free), snapshot=elsewhere.digest)
    assert "S8" in told(elsewhere, plan)[0]
