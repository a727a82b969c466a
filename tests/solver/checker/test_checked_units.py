"""What the checker says where several units of one gang leave for a job, or all of the gang: of units that are spread over nodes."""

from __future__ import annotations

import msgspec

from solver.checker.alarm import findings
from solver.checker.check import violations
from solver.milp.highs import optimise
from solver.model.cluster import DeviceId, NodeName
from solver.model.parts import in_parts
from solver.model.quantities import Instant
from solver.model.shape import Shape
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName, JobSpec, QueueName, TaskGroup, TaskPlacement
from solver.plan.plan import Evict, Plan, Shrink, Step, Yields
from solver.policy.policy import Policy, Queue, SchedulingPolicy, policy_of
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
    """A gang has its least on the first node, and each unit of two tasks on the second and the third; a job wants two GPUs of a node."""
    on = ["n1", "n1", *["n2", "n3"] * units]
    placed, taken = list[TaskPlacement](), dict[str, int]()
    for index, name in enumerate(on):
        device = taken[name] = taken.get(name, -1) + 1
        placed.append(TaskPlacement("worker", index, NodeName(name), (DeviceId(f"{name}/{device}"),)))
    group, began = TaskGroup("worker", len(on), Shape(1), min_replicas=2, replica_step=2), Instant(-HOUR_MS)
    spec = JobSpec(QueueName("borrower"), (group,))
    gang = Job(JobName("gang"), began, spec, "", "running", 1, began, tuple(placed))
    nodes = [node("n1", 2), node("n2", gpus), node("n3", gpus)]
    return snapshot_of(Instant(0), nodes, [gang, job("waits", "owner", 1, 2)])


def plan_of(snapshot: Snapshot, policy: Policy = POLICY) -> Plan:
    return solve(snapshot, policy, optimise)


def with_whole_gang(snapshot: Snapshot, plan: Plan) -> Plan:
    """The same plan, by which all of the gang leaves."""

    def whole(step: Step) -> Step:
        if not isinstance(step, Shrink):
            return step
        lost = sum(1 for _ in snapshot.jobs[0].placement) * 3660.0
        return Evict(step.job, step.attempt, step.means, step.grace, 6000, lost, step.beneficiary)  # type: ignore[arg-type]

    return msgspec.structs.replace(plan, steps=tuple(map(whole, plan.steps)))


def rules(snapshot: Snapshot, plan: Plan) -> set[str]:
    return {found.rule for found in violations(snapshot, POLICY, plan)}
