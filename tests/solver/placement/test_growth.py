"""The order of growth in the greedy answer, which stands where no optimiser is at hand: first everybody's least."""

from __future__ import annotations

import msgspec
import pytest

from solver.checker.check import violations
from solver.model.cluster import NodeName
from solver.model.quantities import Instant
from solver.model.shape import Shape
from solver.model.snapshot import snapshot_of
from solver.model.workload import Job, JobName, JobSpec, QueueName, TaskGroup, TaskPlacement, TopologyRequest
from solver.plan.plan import Bind, Evict
from solver.policy.policy import Policy, Queue, policy_of
from solver.round.solve import solve
from tests.solver.worlds import CLASSES, HOUR_MS, job, node, quota_of


def guaranteeing(**gpus: int) -> Policy:
    return policy_of(tuple(Queue(QueueName(name), quota=(quota_of("H100", most),)) for name, most in gpus.items()))


def elastic(name: str, queue: str, least: int, most: int, gpus: int = 8) -> Job:
    spec = JobSpec(QueueName(queue), (TaskGroup("worker", most, Shape(gpus), min_replicas=least),))
    return Job(JobName(name), Instant(0), spec)


def sizes(nodes: int, jobs: list[Job], policy: Policy) -> dict[str, int]:
    """How many tasks each job gets by the greedy answer alone."""
    world = snapshot_of(Instant(1), [node(f"n{number}", 8) for number in range(nodes)], jobs)
    plan = solve(world, policy, None)
    return {step.job: len(step.tasks) for step in plan.steps if isinstance(step, Bind)}


@pytest.mark.parametrize(("guaranteed", "tasks"), [(16, 2), (8, 1)])
def test_beside_evictions_a_job_grows_inside_its_guarantee_alone(guaranteed: int, tasks: int) -> None:
    """At its full size it is in two racks, at its least size in one: the certificate counts what it has."""
    nodes = [node("n1", 8, rack="r1"), node("n2", 8, rack="r2"), node("a1", 8, "A100")]
    guest = msgspec.structs.replace(
        job("guest", "left", 1, 8, priority_class="training"),
        phase="running",
        attempt=1,
        started_at=Instant(-HOUR_MS),
        placement=(TaskPlacement("worker", 0, NodeName("a1"), tuple(gpu.id for gpu in nodes[2].gpus)),),
    )
    grows = elastic("grows", "left", 1, 2)
    spec = msgspec.structs.replace(grows.spec, topology=TopologyRequest(preferred="rack"), priority_class="training")
    owner = job("owner", "right", 1, 8, types=["A100"], priority_class="training")
    policy = policy_of(
        (
            Queue(QueueName("left"), quota=(quota_of("H100", guaranteed), quota_of("A100", 0))),
            Queue(QueueName("right"), quota=(quota_of("A100", 8),)),
        ),
        CLASSES,
    )
    world = snapshot_of(Instant(1), nodes, [guest, msgspec.structs.replace(grows, spec=spec), owner])
    plan = solve(world, policy, None)
    assert violations(world, policy, plan) == ()
    assert [len(step.tasks) for step in plan.steps if isinstance(step, Bind)] == [tasks]
    assert any(isinstance(step, Evict) for step in plan.steps)


def test_a_partly_entitled_gang_comes_before_growth() -> None:
    jobs = [elastic("grows", "left", 1, 4), job("partly", "right", 1, 8, submitted=1)]
    assert sizes(2, jobs, guaranteeing(left=8, right=4)) == {"grows": 1, "partly": 1}


def test_growth_inside_a_guarantee_comes_before_a_borrower() -> None:
    jobs = [elastic("grows", "left", 1, 4), job("borrower", "right", 1, 8, submitted=-1)]
    assert sizes(3, jobs, guaranteeing(left=24, right=0)) == {"grows": 3}
    assert sizes(4, jobs, guaranteeing(left=24, right=0)) == {"grows": 3, "borrower": 1}


def test_a_borrower_comes_before_growth_that_borrows() -> None:
    jobs = [elastic("grows", "left", 1, 4), job("borrower", "right", 1, 8, submitted=1)]
    assert sizes(3, jobs, guaranteeing(left=8, right=0)) == {"grows": 2, "borrower": 1}


def test_the_first_in_the_order_grows_first() -> None:
    jobs = [elastic("first", "q", 1, 3), elastic("second", "q", 1, 3)]
    assert sizes(4, jobs, guaranteeing(q=32)) == {"first": 3, "second": 1}
