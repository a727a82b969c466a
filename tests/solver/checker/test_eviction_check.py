"""Judged alone, jobs that leave for another are refused where a plan of that would be, in any world."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from solver.checker.check import narrow_violations
from solver.checker.ledger_check import LedgerCheck
from solver.model.cluster import DeviceId, NodeName
from solver.model.inflight import Intent
from solver.model.quantities import Duration, Instant, MilliGpu
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.snapshot_patch import patch_between
from solver.model.workload import Job, JobName, QueueName, TaskPlacement
from solver.narrow.acted_on import acted_on
from solver.plan.plan import Certificate, Evict, Nominate, Plan, Step, Yields
from solver.plan.violation import Violation
from solver.policy.harm import Evictions, Means, Protection
from solver.policy.policy import Policy, PriorityClass, Queue, SchedulingPolicy, policy_of
from solver.round.solve import solve
from tests.drawn import worlds
from tests.solver.aftermath import victims_gone
from tests.solver.checker.test_ledger_check import anywhere, candidates_in, kinds
from tests.solver.crowded import crowded, crowded_policies, urgent
from tests.solver.worlds import job, node, policies, quota_of, snapshots


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


@worlds(300)
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


FREELY = PriorityClass("training", 100, protection=Protection(min_runtime=Duration(60_000)))
HIGHER = PriorityClass("inference", 1000, slo_class="latency-critical")
NOW = Instant(100_000)


def lent_by(gpus: int, **evictions: Any) -> Policy:
    """A queue that is guaranteed so many GPUs, and one that is guaranteed four and holds eight."""
    queues = [Queue(QueueName(name), None, (quota_of("H100", most),)) for name, most in (("own", gpus), ("theirs", 4))]
    scheduling = SchedulingPolicy(reclaim="guaranteed", evictions=Evictions(**evictions))
    return policy_of(tuple(queues), (FREELY, HIGHER), scheduling)


def lent(number: int, **changed: Any) -> Job:
    """One of four jobs of two GPUs on the one node: the first two lie inside the guarantee of their queue."""
    gpus = tuple(DeviceId(f"n1/{2 * number + index}") for index in range(2))
    changed.setdefault("started_at", Instant(number))
    known = job(f"lent-{number}", "theirs", 1, 2, priority_class="training")
    placement = (TaskPlacement("worker", 0, NodeName("n1"), gpus),)
    return msgspec.structs.replace(known, phase="running", attempt=1, placement=placement, **changed)


def evicted(number: int, **changed: Any) -> Evict:
    """One of them leaves."""
    step = Evict(JobName(f"lent-{number}"), 1, "reclaim", Duration(1), MilliGpu.gpus(2), 0.0, JobName("comes"))
    return msgspec.structs.replace(step, **changed)


def refusals(
    policy: Policy, evictions: Sequence[Evict], places: Sequence[int], *others: Job, asked: Sequence[int] = ()
) -> set[str]:
    """The rules that a promise breaks of the places of some of the four jobs; `others` run in the place of some of these."""
    running = {one.name: one for one in (*map(lent, range(4)), *others)}
    comes = job("comes", "own", 1, 2 * len(places), priority_class="inference")
    world = snapshot_of(NOW, [node("n1", 8)], [*running.values(), comes])
    check = LedgerCheck(world, policy)
    for number in asked:
        check.ask(Intent("stop", JobName(f"lent-{number}"), 1, NOW, NOW, purpose="evict"))
    gpus = tuple(device for number in places for device in lent(number).placement[0].devices)
    promise = Nominate(comes.name, 1, (TaskPlacement("worker", 0, NodeName("n1"), gpus),), Duration(1))
    found = {violation.rule for violation in check.refused_promise(promise, evictions, comes, NOW)}
    assert not asked or found
    return found


def test_borrowed_work_may_leave_for_a_job_inside_its_guarantee() -> None:
    assert refusals(lent_by(4), [evicted(3)], [3]) == set()
    assert refusals(lent_by(4), [evicted(2), evicted(3)], [2, 3]) == set()


def test_each_rule_is_kept() -> None:
    policy = lent_by(4)
    assert refusals(policy, [evicted(1)], [1]) == {"S4"}
    assert refusals(policy, [evicted(3, means="preempt")], [3]) == {"S4"}
    assert refusals(policy, [evicted(3, attempt=2)], [3]) == {"S11"}
    assert refusals(policy, [evicted(3, beneficiary=JobName("other"))], [3]) == {"S8"}
    assert refusals(policy, [evicted(3)], [3], lent(3, started_at=Instant(90_000))) == {"S9"}
    assert refusals(policy, [evicted(3)], [3], lent(3, leaves="not")) == {"S4"}
    assert refusals(policy, [evicted(3)], [3], asked=[3]) == {"S11"}
    assert refusals(policy, [evicted(3)], [2]) == {"S1"}
    assert refusals(policy, [evicted(2), evicted(3)], [3]) == {"S13"}
    assert refusals(lent_by(1), [evicted(3)], [3]) == {"S12"}
    assert refusals(lent_by(4, per_round=5), [evicted(3)], [3]) == {"S9"}
    assert refusals(lent_by(4, min_gain=1.5), [evicted(3)], [3]) == {"S9"}


def test_who_was_asked_before_stands_in_line_no_more() -> None:
    """The first of the queue leaves: the third lies inside its guarantee by then, and the last does not."""
    policy = lent_by(4)
    assert refusals(policy, [evicted(2)], [2]) == set()
    running = [lent(number) for number in range(4)]
    comes = job("comes", "own", 1, 2, priority_class="inference")
    check = LedgerCheck(snapshot_of(NOW, [node("n1", 8)], [*running, comes]), policy)
    promises = {number: Nominate(comes.name, 1, lent(number).placement, Duration(1)) for number in (2, 3)}
    assert check.refused_promise(promises[2], [evicted(2)], comes, NOW) == ()
    check.ask(Intent("stop", JobName("lent-0"), 1, NOW, NOW, purpose="evict"))
    assert kinds(check.refused_promise(promises[2], [evicted(2)], comes, NOW)) == {("S4", "lent-2")}
    assert check.refused_promise(promises[3], [evicted(3)], comes, NOW) == ()
