"""Instances are given up for instances: lawful victims, promises of what is there, and binds of what was promised."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given

from solver.checker.check import violations
from solver.milp.highs import optimise
from solver.model.cluster import GpuType, MigInstance
from solver.model.mig import PlacedInstance, mig_model
from solver.model.mig_layout import find_profile
from solver.model.quantities import Duration, Instant, MilliGpu
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import MigSlot, QueueName, TaskPlacement
from solver.plan.plan import Bind, Evict, Nominate, Plan, Repartition
from solver.policy.division import MigGeometry
from solver.policy.harm import Protection
from solver.policy.policy import Policy, PriorityClass, Queue, Quota, SchedulingPolicy, policy_of
from solver.round.solve import solve
from tests.solver.aftermath import applied, victims_gone
from tests.solver.round.test_mig import MODELS, asking, holder, many, partitioned, partitioned_by
from tests.solver.worlds import job, node

EVERYTHING = MilliGpu.gpus(100)


def lent(world: tuple[Snapshot, Policy]) -> tuple[Snapshot, Policy]:
    """The same where all that runs is borrowed, nothing protects it, and queue b is guaranteed everything."""
    snapshot, policy = world
    queues = tuple(
        Queue(QueueName(name), quota=tuple(Quota(GpuType(known), guaranteed=gpus) for known in MODELS))
        for name, gpus in (("a", MilliGpu(0)), ("b", EVERYTHING))
    )
    plain = PriorityClass("plain", protection=Protection(min_runtime=Duration(0)))
    jobs = (
        msgspec.structs.replace(known, started_at=Instant(1)) if known.phase == "running" else known
        for known in snapshot.jobs
    )
    scheduling = SchedulingPolicy(default_priority_class="plain")
    return (
        snapshot_of(snapshot.time, snapshot.nodes, jobs, snapshot.in_flight),
        policy_of(queues, (plain,), scheduling, mig=policy.mig),
    )


def promised(plan: Plan) -> set[str]:
    """Every instance that is promised."""
    steps = (step for step in plan.steps if isinstance(step, Nominate))
    return {device for step in steps for task in step.tasks if task.mig for device in task.devices}


@pytest.mark.thorough
@many
@given(partitioned())
def test_instances_that_are_there_are_promised_and_then_bound(world: tuple[Snapshot, Policy]) -> None:
    snapshot, policy = lent(world)
    for optimiser in (None, optimise):
        plan = solve(snapshot, policy, optimiser)
        assert violations(snapshot, policy, plan) == ()
        there = {one.id_on(gpu.id) for known in snapshot.nodes for gpu in known.gpus for one in gpu.instances or ()}
        assert promised(plan) <= there
        after = partitioned_by(victims_gone(applied(snapshot, plan)), plan)
        changed = {step.device for step in plan.steps if isinstance(step, Repartition)}
        then = solve(after, policy, optimiser)
        assert violations(after, policy, then) == ()
        bound = {step.job: step.tasks for step in then.steps if isinstance(step, Bind)}
        for step in plan.steps:
            if isinstance(step, Nominate):
                assert bound[step.job] == step.tasks
                assert not changed & {gpu for task in step.tasks if task.mig for gpu in task.on_gpus}


HALVES = (MigInstance("3g.40gb", 0), MigInstance("3g.40gb", 4))


def two_halves() -> tuple[Snapshot, Policy]:
    """One GPU in two halves, both lent, and one who is guaranteed them and asks for one."""
    made = node("n0", 1, "H100")
    made = msgspec.structs.replace(made, gpus=(msgspec.structs.replace(made.gpus[0], instances=HALVES),))
    profile = find_profile(mig_model("H100-80GB"), "3g.40gb")
    assert profile is not None
    halves = [holder(f"lent-{start}", made, made.gpus[0], PlacedInstance(start, profile), 8) for start in (0, 4)]
    owner = asking(job("owner", "b", 1, 1), "3g.40gb")
    free = MigGeometry("parts", "h100", "free", "H100-80GB")
    return lent((snapshot_of(Instant(1000), [made], [*halves, owner]), policy_of((), mig=(free,))))


def test_one_leaves_for_one() -> None:
    snapshot, policy = two_halves()
    plan = solve(snapshot, policy, None)
    assert violations(snapshot, policy, plan) == ()
    assert len([step for step in plan.steps if isinstance(step, Evict)]) == 1
    assert promised(plan) < {one.id_on(snapshot.nodes[0].gpus[0].id) for one in HALVES}
    assert len(promised(plan)) == 1


def promising(plan: Plan, task: TaskPlacement) -> Plan:
    """The plan with something else promised."""
    steps = (
        msgspec.structs.replace(step, tasks=(task,)) if isinstance(step, Nominate) else step for step in plan.steps
    )
    return msgspec.structs.replace(plan, steps=tuple(steps))


@pytest.mark.parametrize("instance", [MigInstance("3g.40gb", 2), MigInstance("1g.10gb", 0)])
def test_a_promise_of_an_instance_that_is_not_there_is_found(instance: MigInstance) -> None:
    snapshot, policy = two_halves()
    plan, gpu = solve(snapshot, policy, None), snapshot.nodes[0].gpus[0].id
    slot = MigSlot(gpu, instance, MilliGpu(500))
    task = TaskPlacement("worker", 0, snapshot.nodes[0].name, (instance.id_on(gpu),), mig=slot)
    found = violations(snapshot, policy, promising(plan, task))
    assert f"GPU {gpu} has no {instance.profile} at {instance.start}" in {violation.problem for violation in found}


def test_a_promise_of_a_partitioned_gpu_as_a_whole_is_found() -> None:
    snapshot, policy = two_halves()
    plan, gpu = solve(snapshot, policy, None), snapshot.nodes[0].gpus[0].id
    task = TaskPlacement("worker", 0, snapshot.nodes[0].name, (gpu,))
    found = violations(snapshot, policy, promising(plan, task))
    assert f"GPU {gpu} is in MIG mode and promised as a whole" in {violation.problem for violation in found}
