"""Parts of GPUs: no device holds more than itself, neighbours trust each other, and the round is as good as trying everything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from solver.capacity.free_capacity import FreeCapacity
from solver.capacity.sharing import sharing_of
from solver.checker.check import violations
from solver.milp.certificate import better
from solver.milp.highs import optimise
from solver.model.cluster import DeviceId, GpuType
from solver.model.quantities import Instant, Memory, MilliGpu
from solver.model.shape import Shape
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName, JobSpec, QueueName, TaskGroup, TaskPlacement, TopologyRequest
from solver.plan.plan import Bind, Plan
from solver.policy.division import SharingPolicy, TrustGroup
from solver.policy.policy import Policy, PriorityClass, Queue, SchedulingPolicy, policy_of
from solver.policy.tree import QueueTree
from solver.round.solve import solve
from tests.drawn import counted, worlds
from tests.solver.aftermath import applied
from tests.solver.milp.test_program import EFFORT, formulated
from tests.solver.round.test_against_brute_force import both
from tests.solver.round.test_properties import protecting_what_just_started
from tests.solver.worlds import GIB, job, node, policies, sharing_policies, snapshots, with_fractions

many = worlds(150)
ROUNDS = counted(400)
WORLDS = snapshots().flatmap(with_fractions)
POLICIES = policies().flatmap(sharing_policies)


@many
@given(WORLDS | snapshots(elastic=True).flatmap(with_fractions), POLICIES)
def test_no_device_holds_more_than_itself(snapshot: Snapshot, policy: Policy) -> None:
    for optimiser in (None, optimise):
        plan = solve(snapshot, policy, optimiser)
        assert violations(snapshot, policy, plan) == ()
        given_away: Counter[DeviceId] = Counter()
        for known in applied(snapshot, plan).jobs:
            for task in known.placement:
                given_away.update(dict.fromkeys(task.devices, task.gpus // len(task.devices)))
        assert all(milli <= 1000 for milli in given_away.values())


@pytest.mark.thorough
@many
@given(WORLDS, POLICIES.map(protecting_what_just_started))
def test_what_is_placed_is_what_the_next_round_finds_taken(snapshot: Snapshot, policy: Policy) -> None:
    after = applied(snapshot, solve(snapshot, policy, optimise))
    assert solve(after, policy, optimise).steps == ()
    sharing = sharing_of(policy, QueueTree.of(policy), after.nodes)
    room, empty = (
        FreeCapacity.of(after, sharing.domain),
        FreeCapacity.of(snapshot_of(after.time, after.nodes, ()), sharing.domain),
    )
    promised = {intent.job: intent.tasks for intent in after.in_flight.nominations}
    for known in after.jobs:
        shapes = {group.name: group.shape for group in known.spec.task_groups}
        for task in promised.get(known.name, known.placement):
            room.give_back(task, shapes[task.group])
    assert room.free_devices == empty.free_devices
    assert room.free_gpus.tolist() == empty.free_gpus.tolist()
    assert not any(room.shared.values())


def test_a_divided_gpu_is_whole_again_when_the_last_part_is_given_back() -> None:
    sharing = sharing_of(POLICY, QueueTree.of(POLICY), (NODE,))
    room = FreeCapacity.empty((NODE,))
    half = sharing.served(Shape(gpu_fraction=MilliGpu(500)), GpuType("H100"), QueueName("a"), "standard")
    first, second = (
        TaskPlacement("worker", index, NODE.name, devices, MilliGpu(500), "mps")
        for index, devices in enumerate(room.take(0, half, 2))
    )
    assert first.devices == second.devices == (DeviceId("n1/0"),)
    assert (room.free_gpus[0], room.slots(half, None)[0]) == (1, 2)
    room.give_back(first, half)
    assert (room.free_gpus[0], room.slots(half, None)[0]) == (1, 3)
    room.give_back(second, half)
    assert (room.free_gpus[0], room.slots(half, None)[0]) == (2, 4)


@worlds(60)
@given(WORLDS, POLICIES)
def test_the_greedy_answer_satisfies_every_row(snapshot: Snapshot, policy: Policy) -> None:
    program, start = formulated(snapshot, policy)
    assert program.is_satisfied_by(start)
    solution = optimise(program, start, EFFORT)
    assert solution is not None
    assert program.is_satisfied_by(solution.values)


def test_shares_kept_together_take_nothing_from_whole_gpus_where_nobody_shares() -> None:
    """Two pools of one type in one program: one whose GPUs are divided, and one whose are not."""
    halves = TaskGroup("halves", 2, Shape(gpu_fraction=MilliGpu(500)))
    spec = JobSpec(QueueName("a"), (halves,), topology=TopologyRequest(required="island"))
    together = Job(JobName("halves"), Instant(0), spec)
    whole = job("whole", "a", 2, 1, required="island")
    apart = node("n2", 2, pool="not-shared")
    snapshot = snapshot_of(Instant(0), [NODE, apart], [together, whole, job("many", "a", 2, 2)])
    program, start = formulated(snapshot, POLICY)
    assert program.is_satisfied_by(start)


@pytest.mark.thorough
def test_the_round_is_as_good_as_trying_everything() -> None:
    tally: Counter[str] = Counter()

    @seed(7)
    @settings(max_examples=ROUNDS, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(snapshots(nodes_max=3, jobs_max=4).flatmap(with_fractions), POLICIES)
    def compare(snapshot: Snapshot, policy: Policy) -> None:
        answer, best, reached = both(snapshot, policy)
        assert not better(reached, best), "the answer is better than possible: it breaks a rule"
        proven = all(layer.status == "proven" for layer in answer.certificate.layers)
        assert not (proven and better(best, reached)), "the certificate proves a value that is not the best"
        tally["rounds"] += 1
        tally["best"] += not better(best, reached)
        tally["shared"] += any(task.share for start in answer.starts for task in start.placed.tasks)
        tally["by program"] += answer.certificate.stage == "mip"

    compare()
    assert tally["rounds"] == ROUNDS
    assert tally["shared"] >= ROUNDS // 8, "hardly anything is shared: these worlds do not test fractions"
    # Fractions that do not divide each other (0.6 and 0.4) make the rows of slots necessary and not sufficient.
    assert tally["best"] >= 0.98 * tally["rounds"]


NODE = msgspec.structs.replace(
    node("n1", 2), gpus=tuple(msgspec.structs.replace(gpu, memory=Memory(80 * GIB)) for gpu in node("n1", 2).gpus)
)


def part(name: str, queue: str, milli: int, priority_class: str = "") -> Job:
    """A pending job of one task with a part of a GPU."""
    asked = job(name, queue, 1, 0, priority_class=priority_class)
    (group,) = asked.spec.task_groups
    shape = msgspec.structs.replace(group.shape, gpu_fraction=MilliGpu(milli))
    spec = msgspec.structs.replace(asked.spec, task_groups=(msgspec.structs.replace(group, shape=shape),))
    return msgspec.structs.replace(asked, spec=spec)


CRITICAL = PriorityClass("inference", 2, "latency-critical")
POLICY = policy_of(
    (Queue(QueueName("a")), Queue(QueueName("b"))),
    (CRITICAL,),
    sharing=(SharingPolicy("parts", ("h100",), "mps", (TrustGroup("both", (QueueName("a"), QueueName("b"))),)),),
)
WORLD = snapshot_of(Instant(1), [NODE], [part("x", "a", 400), part("y", "b", 400), part("z", "a", 500, "inference")])


def test_the_plan_is_good_before_it_is_spoilt() -> None:
    assert violations(WORLD, POLICY, solve(WORLD, POLICY, optimise)) == ()


def spoilt(name: str, **fields: Any) -> Callable[[Plan], Plan]:
    def change(plan: Plan) -> Plan:
        def bind(step: Bind) -> Bind:
            return msgspec.structs.replace(step, tasks=(msgspec.structs.replace(step.tasks[0], **fields),))

        steps = tuple(bind(step) if isinstance(step, Bind) and step.job == name else step for step in plan.steps)
        return msgspec.structs.replace(plan, steps=steps)

    return change


def together(plan: Plan) -> Plan:
    """Everybody on the first GPU: 1.3 of it."""
    for name in "xyz":
        plan = spoilt(name, devices=(DeviceId("n1/0"),))(plan)
    return plan


def sharing(**fields: Any) -> Policy:
    (known,) = POLICY.sharing
    return msgspec.structs.replace(POLICY, sharing=(msgspec.structs.replace(known, **fields),))


@pytest.mark.parametrize(
    ("rule", "policy", "change"),
    [
        ("S1", POLICY, together),
        ("S2", POLICY, spoilt("x", share=MilliGpu(300))),
        ("S2", POLICY, spoilt("x", share=None)),
        ("S2", POLICY, spoilt("x", devices=(DeviceId("n1/0"), DeviceId("n1/1")))),
        ("S7", sharing(trust_domains=()), together),
        ("S7", sharing(pools=("other",)), lambda plan: plan),
        ("S7", sharing(mode="time-slicing"), spoilt("z", sharing="time-slicing")),
        ("S7", POLICY, spoilt("x", sharing="time-slicing")),
    ],
)
def test_a_fault_is_found(rule: str, policy: Policy, change: Callable[[Plan], Plan]) -> None:
    plan = msgspec.structs.replace(change(solve(WORLD, POLICY, optimise)), policy=policy.digest)
    assert rule in {violation.rule for violation in violations(WORLD, policy, plan)}


FIRST, SECOND = DeviceId("n1/0"), DeviceId("n1/1")


@pytest.mark.parametrize(
    ("rules", "fields"),
    [
        ((), {}),
        (("S2",), {"devices": (FIRST,)}),
        (("S1", "S2"), {"devices": (FIRST, FIRST)}),
        (("S2",), {"share": MilliGpu(400)}),
        (("S1",), {"devices": (FIRST, DeviceId("n2/0"))}),
    ],
)
def test_a_part_of_each_of_several_gpus_is_judged(rules: tuple[str, ...], fields: dict[str, Any]) -> None:
    asked = part("x", "a", 600)
    (group,) = asked.spec.task_groups
    groups = (msgspec.structs.replace(group, shape=msgspec.structs.replace(group.shape, devices=2)),)
    world = snapshot_of(
        Instant(1),
        [NODE],
        [msgspec.structs.replace(asked, spec=msgspec.structs.replace(asked.spec, task_groups=groups))],
    )
    plan = solve(world, POLICY, optimise)
    (bind,) = plan.steps
    assert isinstance(bind, Bind)
    assert [(task.devices, task.share, task.gpus) for task in bind.tasks] == [((FIRST, SECOND), 600, 1200)]
    bad = spoilt("x", **fields)(plan)
    assert tuple(sorted({violation.rule for violation in violations(world, POLICY, bad)})) == rules


def test_a_latency_critical_job_gets_no_gpu_that_is_shared_by_turns() -> None:
    turns, plan = sharing(mode="time-slicing"), solve(WORLD, POLICY, optimise)
    for name in "xyz":
        plan = spoilt(name, sharing="time-slicing")(plan)
    found = violations(WORLD, turns, msgspec.structs.replace(plan, policy=turns.digest))
    assert [(one.rule, one.subject) for one in found] == [("S7", "z")]


def test_a_whole_gpu_is_not_divided_and_a_divided_one_not_given_whole() -> None:
    (whole,) = solve(snapshot_of(Instant(1), [NODE], [job("w", "a", 1, 1)]), POLICY, None).steps
    assert isinstance(whole, Bind)
    for share in (None, MilliGpu(500)):
        held = TaskPlacement("worker", 0, NODE.name, whole.tasks[0].devices, share)
        runs = msgspec.structs.replace(
            part("r", "a", 500) if share else job("r", "a", 1, 1), phase="running", attempt=1, placement=(held,)
        )
        wants = job("w", "a", 1, 1) if share else part("w", "a", 500)
        world = snapshot_of(Instant(1), [NODE], [runs, wants])
        good = solve(world, POLICY, None)
        assert violations(world, POLICY, good) == ()
        bad = spoilt("w", devices=held.devices)(good)
        assert [violation.rule for violation in violations(world, POLICY, bad)] == ["S1"]


@pytest.mark.parametrize(("times", "share"), [(1.0, 500), (1.5, 334), (2.0, 250)])
def test_of_an_oversubscribed_gpu_a_fraction_has_as_much_less_and_the_checker_knows(times: float, share: int) -> None:
    half = job("half", "left", 1, 0)
    group = TaskGroup("worker", 1, Shape(gpu_fraction=MilliGpu(500)))
    half = msgspec.structs.replace(half, spec=msgspec.structs.replace(half.spec, task_groups=(group,)))
    world = snapshot_of(Instant(0), [node("n", 1)], [half])
    sharing = SharingPolicy("turns", ("h100",), "time-slicing", (), times)
    policy = policy_of((Queue(QueueName("left")),), (), SchedulingPolicy(), (sharing,))
    plan = solve(world, policy, optimise)
    (step,) = plan.steps
    assert isinstance(step, Bind)
    assert [task.share for task in step.tasks] == [share]
    assert violations(world, policy, plan) == ()
    for wrong in (share - 1, share + 1):
        tasks = tuple(msgspec.structs.replace(task, share=MilliGpu(wrong)) for task in step.tasks)
        spoilt = msgspec.structs.replace(plan, steps=(msgspec.structs.replace(step, tasks=tasks),))
        assert "S2" in {found.rule for found in violations(world, policy, spoilt)}
