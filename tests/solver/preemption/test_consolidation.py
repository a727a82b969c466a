"""Jobs that move so that others fit: nobody loses anything but time, everybody goes on where it was promised, and it ends."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import strategies as st

from solver.checker.case import moving
from solver.checker.check import violations
from solver.milp.highs import optimise
from solver.model.cluster import DeviceId, Node, NodeName
from solver.model.quantities import Cpu, Duration, Instant
from solver.model.shape import Shape
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName, QueueName, TaskGroup, TaskPlacement, TopologyRequest
from solver.plan.plan import Bind, Evict, Nominate, Plan, Shrink
from solver.policy.harm import Evictions, Protection
from solver.policy.policy import Policy, Queue, SchedulingPolicy, policy_of
from solver.policy.tree import QueueTree
from solver.quota.entitlement import use_by_line
from solver.round.solve import solve
from tests.drawn import worlds
from tests.solver.aftermath import applied, victims_gone
from tests.solver.worlds import CLASSES, HOUR_MS, job, jobs, node, policies, quota_of

some = worlds(50, suppress_health_check=[HealthCheck.filter_too_much])
many = worlds(150)


@st.composite
def scattered(draw: st.DrawFn) -> Snapshot:
    """Six nodes, on each of which a job leaves some of four GPUs free, gangs over several, and one or two that want whole ones."""
    nodes = [node(f"n{index}", 4, rack=f"r{index // 2}", cpu=16) for index in range(6)]
    free = {known.name: [gpu.id for gpu in known.gpus] for known in nodes}
    alone = [draw(runner(number, [known.name], free)) for number, known in enumerate(nodes)]
    gangs = [draw(runner(6 + number, [*free], free)) for number in range(draw(st.integers(0, 2)))]
    pending = []
    for number in range(draw(st.integers(1, 2))):
        made, gpus = draw(jobs(number, (1,), close=True)), draw(st.sampled_from([2, 3, 4, 4]))
        group = msgspec.structs.replace(made.spec.task_groups[0], replicas=draw(st.integers(1, 2)), shape=Shape(gpus))
        pending.append(msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, task_groups=(group,))))
    return snapshot_of(Instant(1000), nodes, [*(job for job in (*alone, *gangs) if job.placement), *pending])


@st.composite
def runner(draw: st.DrawFn, number: int, on: list[NodeName], free: dict[NodeName, list[DeviceId]]) -> Job:
    """A running gang with a task on one node, or a few on several as far as there is room for them; takes the devices."""
    made, gpus = draw(jobs(number, (1,), close=True)), draw(st.sampled_from([1, 1, 2]))
    placement = list[TaskPlacement]()
    for _ in range(1 if len(on) == 1 else draw(st.integers(1, 3))):
        able = [name for name in on if len(free[name]) > gpus]
        if able:
            name = draw(st.sampled_from(able))
            devices, free[name] = tuple(free[name][:gpus]), free[name][gpus:]
            placement.append(TaskPlacement("worker", len(placement), name, devices))
    shape = Shape(gpus, cpu=Cpu(draw(st.sampled_from([0, 1000, 6000]))))
    topology = TopologyRequest(preferred=made.spec.topology.preferred, spread=made.spec.topology.spread)
    group = TaskGroup("worker", max(1, len(placement)), shape)
    spec = msgspec.structs.replace(made.spec, task_groups=(group,), topology=topology)
    started = Instant(-HOUR_MS * draw(st.integers(0, 3)))
    return Job(JobName(f"run-{number}"), started, spec, made.user, "running", 1, started, tuple(placement))


def willing(policy: Policy) -> Policy:
    """The same policy, under which no queue is on hold, and whatever runs may be interrupted at any time."""
    classes = (
        msgspec.structs.replace(known, preemptible=True, protection=Protection(Duration(0)))
        for known in policy.priority_classes
    )
    queues = (msgspec.structs.replace(queue, stop_policy="None", priority_classes=None) for queue in policy.queues)
    evictions = msgspec.structs.replace(policy.scheduling.evictions, per_round=None)
    scheduling = msgspec.structs.replace(policy.scheduling, evictions=evictions)
    return policy_of(tuple(queues), tuple(classes), scheduling)


def only_moves(plan: Plan) -> bool:
    """Whether some move, and nobody else is asked to leave or to shrink."""
    left = {step.job for step in plan.steps if isinstance(step, Evict | Shrink)}
    return bool(left) and left == moving(plan)


@pytest.mark.thorough
@some
@given(scattered(), policies().map(willing))
def test_who_moves_goes_on_where_it_was_promised_and_no_queue_holds_less(snapshot: Snapshot, policy: Policy) -> None:
    plan = solve(snapshot, policy, None)
    assert violations(snapshot, policy, plan) == ()
    assume(only_moves(plan))
    promised = {step.job: step.tasks for step in plan.steps if isinstance(step, Nominate)}
    before = {job.name: job for job in snapshot.jobs}
    while_they_leave = applied(snapshot, plan)
    waiting = solve(while_they_leave, policy, None)
    assert violations(while_they_leave, policy, waiting) == ()
    assert not any(isinstance(step, Bind) and step.job in promised for step in waiting.steps)
    after = victims_gone(applied(while_they_leave, waiting))
    bound = {step.job: step.tasks for step in solve(after, policy, None).steps if isinstance(step, Bind)}
    assert {name: bound.get(name) for name in promised} == promised
    for name in moving(plan):
        assert sum(task.gpus for task in promised[name]) == sum(task.gpus for task in before[name].placement)
    tree = QueueTree.of(policy)
    held, holds = use_by_line(snapshot, tree), use_by_line(while_they_leave, tree)
    assert {line: milli for line, milli in held.items() if holds.get(line, 0) < milli} == {}


@pytest.mark.thorough
@many
@given(scattered(), policies() | policies().map(willing))
def test_moving_comes_to_rest(snapshot: Snapshot, policy: Policy) -> None:
    for _ in range(20):
        plan = solve(snapshot, policy, None)
        assert violations(snapshot, policy, plan) == ()
        if not plan.steps:
            return
        snapshot = victims_gone(applied(snapshot, plan))
    raise AssertionError("still busy after 20 rounds")


@pytest.mark.thorough
@many
@given(scattered(), policies().map(willing))
def test_nobody_moves_where_the_policy_has_it_so(snapshot: Snapshot, policy: Policy) -> None:
    evictions = msgspec.structs.replace(policy.scheduling.evictions, moves_per_round=0)
    scheduling = msgspec.structs.replace(policy.scheduling, evictions=evictions)
    policy = msgspec.structs.replace(policy, scheduling=scheduling)
    plan = solve(snapshot, policy, None)
    assert violations(snapshot, policy, plan) == ()
    assert moving(plan) == frozenset()


def test_a_job_gains_enough_by_itself_for_what_moves_for_it() -> None:
    """With `y` beside it `x` gains twice what moves; alone it gains 2 GPUs, for which one of 3 would move."""
    small, fits, other = node("n0", 4), node("n1", 4, cpu=16), node("n2", 4, cpu=50)

    def running(name: str, on: Node, gpus: int, known: str = "training") -> Job:
        made = job(name, "b", 1, gpus, priority_class=known, cpu=1)
        held = (TaskPlacement("worker", 0, on.name, tuple(gpu.id for gpu in on.gpus[:gpus])),)
        since = Instant(-HOUR_MS)
        return msgspec.structs.replace(made, phase="running", attempt=1, started_at=since, placement=held)

    world = snapshot_of(
        Instant(1000),
        [small, fits, other],
        [
            *(running("m", small, 3), running("stays", fits, 1), running("lent", other, 4, "batch")),
            *(job("x", "a", 1, 2, cpu=90), job("y", "a", 1, 4, cpu=40)),
        ],
    )
    queues = tuple(Queue(QueueName(name), None, (quota_of("H100", gpus),)) for name, gpus in (("a", 8), ("b", 4)))
    for gain, moved in ((0.5, {"x"}), (1.0, {"y"})):
        policy = policy_of(queues, CLASSES, SchedulingPolicy(evictions=Evictions(min_gain=gain)))
        for optimiser in (None, optimise):
            plan = solve(world, policy, optimiser)
            assert violations(world, policy, plan) == ()
            assert {
                step.beneficiary for step in plan.steps if isinstance(step, Evict) and step.means == "move"
            } == moved
