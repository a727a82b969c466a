"""Judged alone, jobs that leave for another are refused where a plan of that would be, in any world."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from solver.checker.check import narrow_violations
from solver.checker.ledger_check import LedgerCheck
from solver.model.cluster import DeviceId
from solver.model.quantities import Duration, MilliGpu
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.snapshot_patch import patch_between
from solver.model.workload import Job, TaskPlacement
from solver.narrow.acted_on import acted_on
from solver.plan.plan import Certificate, Evict, Nominate, Plan, Step, Yields
from solver.plan.violation import Violation
from solver.policy.policy import Policy
from solver.quota.victims import Means
from solver.round.solve import solve
from tests.drawn import worlds
from tests.solver.aftermath import victims_gone
from tests.solver.checker.test_ledger_check import anywhere, candidates_in, kinds
from tests.solver.crowded import crowded, crowded_policies, urgent
from tests.solver.worlds import policies, snapshots


def judged(world: Snapshot, policy: Policy, steps: Iterable[Step]) -> tuple[Violation, ...]:
    """What the checker of whole plans finds."""
    steps, jobs = tuple(steps), {job.name: job for job in world.jobs}
    said = [
        Yields(
            step.job,
            jobs[step.job].spec.queue,
            step.beneficiary,
            jobs[step.beneficiary].spec.queue,
            "reclaim",
            step.gpus,
            step.lost_gpu_s,
        )
        for step in steps
        if isinstance(step, Evict) and step.beneficiary
    ]
    plan = Plan(world.digest, policy.digest, steps, tuple(said), Certificate("greedy", (), 0.0, "greedy", 0))
    return narrow_violations(world, policy, plan)


@st.composite
def in_place(draw: st.DrawFn, world: Snapshot, job: Job) -> tuple[tuple[TaskPlacement, ...], list[Job]]:
    """A place for the one task of a job on the GPUs of some that run on a node, and these."""
    host = draw(st.sampled_from(world.nodes))
    there = [
        one for one in world.jobs if one.phase == "running" and {task.node for task in one.placement} == {host.name}
    ]
    devices, leaving, needed = list[DeviceId](), list[Job](), job.spec.task_groups[0].shape.gpus
    for one in draw(st.permutations(there)):
        if len(devices) < needed:
            devices += (device for task in one.placement for device in task.devices)
            leaving.append(one)
    devices = (devices + [gpu.id for gpu in host.gpus if gpu.id not in devices])[:needed]
    return (TaskPlacement(job.spec.task_groups[0].name, 0, host.name, tuple(devices)),), leaving


@st.composite
def promises(draw: st.DrawFn, world: Snapshot, policy: Policy, job: Job) -> tuple[Nominate, list[Evict]]:
    """What a job is promised, wherever it comes, and some who leave for it."""
    if len(job.spec.task_groups) == 1 and draw(st.integers(0, 3)):
        tasks, near = draw(in_place(world, job))
    else:
        tasks = draw(anywhere(world, job))
        there = {task.node for task in tasks}
        near = [one for one in world.jobs if not there.isdisjoint(task.node for task in one.placement)]
    leaving = {one.name: one for one in near if draw(st.integers(0, 9))}
    leaving |= {one.name: one for one in world.jobs if one.placement and draw(st.integers(0, 29)) == 0}
    steps = []
    for one in leaving.values():
        lawful = "preempt" if one.spec.queue == job.spec.queue else "reclaim"
        means: Means = draw(st.sampled_from([lawful] * 20 + ["reclaim", "preempt", "turn", "straddle"]))
        attempt = one.attempt + (draw(st.integers(0, 29)) == 0)
        gpus = MilliGpu(sum(task.gpus for task in one.placement))
        steps.append(Evict(one.name, attempt, means, Duration(60_000), gpus, 0.0, job.name))
    return Nominate(job.name, job.attempt + 1, tasks, Duration(600_000)), steps


@worlds(600)
@given(st.data())
def test_it_refuses_what_the_checker_of_whole_plans_refuses(data: st.DataObject) -> None:
    """In a world that came about by a round or two, of which it heard as of changes."""
    if data.draw(st.integers(0, 3)):
        policy, world = data.draw(crowded_policies()), data.draw(crowded())
        world = snapshot_of(world.time, world.nodes, [*world.jobs, *data.draw(urgent(world.time))])
    else:
        policy = data.draw(policies() | policies(keeping=True))
        world = data.draw(snapshots(elastic=True, close=True))
    check = LedgerCheck(world, policy)
    for _ in range(data.draw(st.integers(0, 2))):
        after = acted_on(world, solve(world, policy, None))
        after = victims_gone(after) if data.draw(st.booleans()) else after
        check.change(patch_between(world, after))
        world = after
    for known in candidates_in(world)[:3]:
        promise, evictions = data.draw(promises(world, policy, known))
        found = check.refused_promise(promise, evictions, known, world.time)
        if kinds(judged(world, policy, [*evictions, promise])):
            assert found
