"""Judged alone, jobs that leave for another are refused where a plan of that would be, in any world."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from solver.checker.check import narrow_violations
from solver.checker.ledger_check import LedgerCheck
from solver.model.quantities import Duration, MilliGpu
from solver.model.snapshot import Snapshot
from solver.model.snapshot_patch import patch_between
from solver.model.workload import Job
from solver.narrow.acted_on import acted_on
from solver.plan.plan import Certificate, Evict, Nominate, Plan, Step, Yields
from solver.plan.violation import Violation
from solver.policy.policy import Policy
from solver.round.solve import solve
from solver.quota.victims import Means
from tests.drawn import worlds
from tests.solver.aftermath import victims_gone
from tests.solver.checker.test_ledger_check import anywhere, candidates_in, kinds
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
def promises(draw: st.DrawFn, world: Snapshot, policy: Policy, job: Job) -> tuple[Nominate, list[Evict]]:
    """What a job is promised, wherever it comes, and some who leave for it."""
    tasks = draw(anywhere(world, job))
    there = {task.node for task in tasks}
    running = [known for known in world.jobs if known.placement]
    near = [known for known in running if not there.isdisjoint(task.node for task in known.placement)]
    leaving = {one.name: one for one in near if draw(st.integers(0, 3))}
    leaving |= {one.name: one for one in running if draw(st.integers(0, 9)) == 0}
    steps = []
    for one in leaving.values():
        alike = one.spec.queue == job.spec.queue
        means: Means = draw(
            st.sampled_from(["preempt" if alike else "reclaim"] * 8 + ["reclaim", "preempt", "turn", "straddle"])
        )
        attempt = one.attempt + (draw(st.integers(0, 19)) == 0)
        gpus = MilliGpu(sum(task.gpus for task in one.placement))
        steps.append(Evict(one.name, attempt, means, Duration(60_000), gpus, 0.0, job.name))
    return Nominate(job.name, job.attempt + 1, tasks, Duration(600_000)), steps


@worlds(600)
@given(st.data())
def test_it_refuses_what_the_checker_of_whole_plans_refuses(data: st.DataObject) -> None:
    """In a world that came about by a round or two, of which it heard as of changes."""
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
