"""The checker finds every fault that is put into a plan whose evictions a rule asks for. The good plan first."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.checker.check import violations
from solver.model.cluster import NodeName
from solver.model.inflight import ConvergenceClock, InFlight
from solver.model.quantities import MilliGpu
from solver.model.shape import Shape
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import JobName, QueueName, TaskGroup, TaskPlacement
from solver.plan.plan import Departs, Evict, Plan, Runs, Shrink
from solver.policy.harm import Evictions
from solver.policy.policy import Policy, PriorityClass, Queue, SchedulingPolicy, policy_of
from solver.round.solve import solve
from tests.solver.checker.test_checked_evictions import NOW, running
from tests.solver.worlds import TYPES, node, quota_of

Q, DRY = QueueName("q"), QueueName("dry")
CLASSES = (PriorityClass("low", 1), PriorityClass("high", 100), PriorityClass("solid", 1, preemptible=False))
POLICY = policy_of((Queue(Q, quota=(quota_of("H100", 8, 16),)), Queue(DRY, stop_policy="HoldAndDrain")), CLASSES)
WORLD = snapshot_of(
    NOW,
    [node(f"n{index}", 8) for index in range(5)],
    [
        running("solid", "q", "n0", 9, "solid"),
        running("high", "q", "n1", 9, "high"),
        running("low", "q", "n2", 9),
        running("lower", "q", "n3", 1),
        running("dry", "dry", "n4", 1),
    ],
    InFlight(convergence=(ConvergenceClock("c0ffee", Q, TYPES[0], MilliGpu.gpus(16), NOW),)),
)


def departing(*names: str, means: str = "converge") -> Plan:
    """A plan in which these leave for the lowered limit, and dry is drained."""
    plan = solve(WORLD, POLICY, None)
    like = next(step for step in plan.steps if isinstance(step, Evict))
    jobs = {job.name: job for job in WORLD.jobs}
    steps = [msgspec.structs.replace(like, job=JobName(name), means=means) for name in names]
    said = [
        Departs(name, job.spec.queue, "converge", Q, MilliGpu.gpus(8), 0.0) if name in names else Runs(name, Q)
        for name, job in jobs.items()
        if name != "dry"
    ]
    drained = [step for step in plan.steps if isinstance(step, Evict) and step.means == "drain"]
    dry = [verdict for verdict in plan.verdicts if verdict.job == "dry"]
    return msgspec.structs.replace(plan, steps=(*drained, *steps), verdicts=(*dry, *said))


def rules(plan: Plan, policy: Policy = POLICY, world: Snapshot = WORLD) -> list[str]:
    return [found.rule for found in violations(world, policy, plan) if found.rule != "stale"]


def test_the_least_harmful_that_suffice_leave() -> None:
    plan = solve(WORLD, POLICY, None)
    assert [(step.job, step.means) for step in plan.steps if isinstance(step, Evict)] == [
        ("dry", "drain"),
        ("lower", "converge"),
        ("low", "converge"),
    ]
    assert rules(plan) == []


def without_drain(plan: Plan) -> Plan:
    steps = tuple(step for step in plan.steps if isinstance(step, Evict) and step.means != "drain")
    verdicts = tuple(Runs(JobName("dry"), DRY) if verdict.job == "dry" else verdict for verdict in plan.verdicts)
    return msgspec.structs.replace(plan, steps=steps, verdicts=verdicts)


def silent(plan: Plan) -> Plan:
    verdicts = tuple(Runs(JobName("dry"), DRY) if verdict.job == "dry" else verdict for verdict in plan.verdicts)
    return msgspec.structs.replace(plan, verdicts=verdicts)


@pytest.mark.parametrize(
    ("fault", "rule"),
    [
        (lambda: departing("low"), "S3"),  # the limit could be kept, and is not
        (lambda: departing("low", "lower", "high"), "S8"),  # one too many
        (lambda: departing("low", "solid"), "S4"),  # what is not preemptible stays
        (lambda: departing("low", "lower", means="drain"), "S8"),  # the queue does not drain
        (lambda: departing("low", "lower", means="reclaim"), "S8"),  # for whom?
        (lambda: without_drain(departing("low", "lower")), "S8"),  # it drains
        (lambda: silent(departing("low", "lower")), "verdicts"),
    ],
)
def test_every_fault_is_found(fault: Callable[[], Plan], rule: str) -> None:
    assert rule in rules(fault())


def test_before_its_time_nobody_leaves_for_a_limit() -> None:
    early = msgspec.structs.replace(WORLD.in_flight.convergence[0], deadline=NOW.after(1))
    world = msgspec.structs.replace(WORLD, in_flight=InFlight(convergence=(early,)))
    assert {step.means for step in solve(world, POLICY, None).steps if isinstance(step, Evict)} == {"drain"}
    assert "S4" in rules(departing("low", "lower"), world=world)


@st.composite
def leaving_worlds(draw: st.DrawFn) -> tuple[Snapshot, Policy]:
    """Gangs, some elastic, in a queue that drains or whose limit was lowered; a round may evict few of them."""
    jobs = []
    for index in range(draw(st.integers(1, 5))):
        tasks, least = draw(st.integers(1, 4)), draw(st.integers(1, 4))
        job = running(f"j{index}", draw(st.sampled_from(["q", "dry"])), f"n{index}", draw(st.integers(0, 9)))
        devices = job.placement[0].devices
        group = TaskGroup("worker", tasks, Shape(gpus=2), min_replicas=min(least, tasks))
        placed = tuple(
            TaskPlacement("worker", number, NodeName(f"n{index}"), (devices[2 * number], devices[2 * number + 1]))
            for number in range(tasks)
        )
        spec = msgspec.structs.replace(job.spec, task_groups=(group,))
        jobs.append(msgspec.structs.replace(job, spec=spec, placement=placed))
    limit = draw(st.integers(0, 16))
    clocks = (ConvergenceClock("c0ffee", Q, TYPES[0], MilliGpu.gpus(limit), NOW),)
    world = snapshot_of(NOW, [node(f"n{index}", 8) for index in range(5)], jobs, InFlight(convergence=clocks))
    queues = (Queue(Q, quota=(quota_of("H100", 0, limit),)), Queue(DRY, stop_policy="HoldAndDrain"))
    evictions = Evictions(per_round=draw(st.none() | st.integers(0, 3)))
    return world, policy_of(queues, CLASSES, SchedulingPolicy(evictions=evictions))


@given(leaving_worlds())
def test_a_round_counts_gangs_and_drains_them_whole(world: tuple[Snapshot, Policy]) -> None:
    snapshot, policy = world
    plan = solve(snapshot, policy, None)
    assert rules(plan, policy, snapshot) == []
    most = policy.scheduling.evictions.per_round
    steps = [step for step in plan.steps if isinstance(step, Evict | Shrink)]
    assert most is None or len(steps) <= most
    assert all(isinstance(step, Evict) for step in steps if step.means == "drain")
