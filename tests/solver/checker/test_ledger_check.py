"""Judged alone, a start is refused where a plan of it would be, in any world, however that came about."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from solver.checker.check import start_violations
from solver.checker.ledger_check import LedgerCheck
from solver.model.cluster import DeviceId, GpuType, NodeName
from solver.model.inflight import InFlight, Intent
from solver.model.quantities import Cpu, Instant
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.snapshot_patch import patch_between
from solver.model.workload import Job, QueueName, TaskPlacement
from solver.narrow.acted_on import acted_on
from solver.plan.plan import Bind, Certificate, Plan
from solver.plan.violation import Violation
from solver.policy.host_share import CpuQuota
from solver.policy.policy import Policy, Queue, policy_of
from solver.round.solve import solve
from solver.round.steps import bind_of
from tests.drawn import worlds
from tests.solver.aftermath import victims_gone
from tests.solver.quota.test_hours import hours_of
from tests.solver.worlds import CLASSES, HOUR_MS, job, node, policies, quota_of, snapshots

GLOBAL = {"fallback"}
"""What is judged of all starts of a round together."""


@st.composite
def anywhere(draw: st.DrawFn, world: Snapshot, job: Job) -> tuple[TaskPlacement, ...]:
    """Tasks of a job wherever it comes: on GPUs that are free or another's, on nodes of another type, or too few of them."""
    tasks = []
    for group in job.spec.task_groups:
        for index in range(draw(st.integers(max(0, group.least - 1), group.replicas))):
            node = draw(st.sampled_from(world.nodes))
            first = draw(st.integers(0, max(0, len(node.gpus) - group.shape.gpus)))
            devices = tuple(gpu.id for gpu in node.gpus[first : first + group.shape.gpus])
            tasks.append(TaskPlacement(group.name, index, node.name, devices))
    return tuple(tasks)


def judged(world: Snapshot, policy: Policy, step: Bind) -> set[tuple[str, str]]:
    """What the checker of whole plans finds."""
    plan = Plan(world.digest, policy.digest, (step,), (), Certificate("greedy", (), 0.0, "greedy", 0))
    return kinds(start_violations(world, policy, plan))


def kinds(found: Iterable[Violation]) -> set[tuple[str, str]]:
    """Which rules are broken, and by what; the words may differ."""
    return {(one.rule, one.subject) for one in found if one.rule not in GLOBAL}


def candidates_in(world: Snapshot) -> list[Job]:
    return [job for job in world.jobs if job.phase == "pending"]


@worlds(250)
@given(st.data())
def test_it_finds_what_the_checker_of_whole_plans_finds(data: st.DataObject) -> None:
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
        step = bind_of(known, data.draw(anywhere(world, known)), policy)
        assert kinds(check.refused(step, known, world.time)) == judged(world, policy, step)


@worlds(200)
@given(snapshots(elastic=True), policies() | policies(keeping=True))
def test_started_one_after_the_other_jobs_stand_beside_those_before(snapshot: Snapshot, policy: Policy) -> None:
    """Each start of a round is judged in the world of those before it; one that it has heard of twice counts once."""
    check, world = LedgerCheck(snapshot, policy), snapshot
    plan = solve(snapshot, policy, None)
    jobs = {job.name: job for job in snapshot.jobs}
    alone = [step for step in plan.steps if isinstance(step, Bind)]
    for step in alone:
        assert kinds(check.refused(step, jobs[step.job], world.time)) == judged(world, policy, step)
        check.hold(jobs[step.job], step.attempt, step.tasks)
        world = acted_on(world, msgspec.structs.replace(plan, steps=(step,)))
    check.change(patch_between(snapshot, world))
    again = LedgerCheck(world, policy)
    for known in candidates_in(world)[:2]:
        step = bind_of(known, tuple(task for bind in alone for task in bind.tasks), policy)
        assert check.refused(step, known, world.time) == again.refused(step, known, world.time)


GPUS = GpuType("H100")


def queue(**more: Any) -> Policy:
    """One queue, with a class whose jobs may be evicted."""
    return policy_of((msgspec.structs.replace(Queue(QueueName("q")), **more),), CLASSES)


def on_gpus(job: Job, first: int, policy: Policy) -> Bind:
    """One task of a job on GPUs of the one node, from a number on."""
    gpus = tuple(DeviceId(f"n1/{number}") for number in range(first, first + job.spec.task_groups[0].shape.gpus))
    return bind_of(job, (TaskPlacement("worker", 0, NodeName("n1"), gpus),), policy)


def running(job: Job, first: int, policy: Policy) -> Job:
    return msgspec.structs.replace(job, phase="running", attempt=1, placement=on_gpus(job, first, policy).tasks)


def test_what_a_user_has_counts_for_the_cap() -> None:
    for cap, found in ((4, []), (3, ["S3 q: 2 + 2 H100 of user (none) is above perUser 3"])):
        policy = queue(quota=(quota_of("H100", 8, 8, cap),))
        waits = job("comes", "q", 1, 2)
        check = LedgerCheck(of_one_node(1, running(job("there", "q", 1, 2), 0, policy), waits), policy)
        assert [str(one) for one in check.refused(on_gpus(waits, 2, policy), waits, Instant(1))] == found


def of_one_node(at: int, *jobs: Job, intents: tuple[Intent, ...] = ()) -> Snapshot:
    return snapshot_of(Instant(at), [node("n1", 8, GPUS)], jobs, InFlight(intents=intents))


def refusals(check: LedgerCheck, job: Job, first: int, policy: Policy) -> set[tuple[str, str]]:
    return kinds(check.refused(on_gpus(job, first, policy), job, Instant(6)))


def test_a_snapshot_that_does_not_show_a_start_yet_does_not_undo_it() -> None:
    policy = queue(quota=(quota_of("H100", 4, 4),))
    one, two = job("one", "q", 1, 3), job("two", "q", 1, 3)
    before, later = of_one_node(0, one, two), of_one_node(5, one, two)
    check = LedgerCheck(before, policy)
    check.hold(one, 1, on_gpus(one, 0, policy).tasks)
    check.change(patch_between(before, later), unseen={one.name})
    assert refusals(check, two, 3, policy) == {("S3", "q")}
    check.change(patch_between(later, later))
    assert refusals(check, two, 3, policy) == set()


def test_what_a_job_is_asked_to_leave_is_charged_no_more_and_its_devices_are_still_its_own() -> None:
    policy = queue(quota=(quota_of("H100", 4, 4),))
    one, two = running(job("one", "q", 1, 3), 0, policy), job("two", "q", 1, 3)
    stop = Intent("stop", one.name, 1, Instant(5), Instant(60_000), purpose="evict")
    before, asked = of_one_node(0, one, two), of_one_node(5, one, two, intents=(stop,))
    check = LedgerCheck(before, policy)
    assert refusals(check, two, 3, policy) == {("S3", "q")}
    with check.leaving((one.name,)):
        assert refusals(check, two, 3, policy) == set()
        assert refusals(check, two, 2, policy) == {("S1", "two")}
    check.change(patch_between(before, asked))
    assert refusals(check, two, 3, policy) == set()
    assert refusals(check, two, 2, policy) == {("S1", "two")}
    # It is let be after all.
    check.change(patch_between(asked, of_one_node(7, one, two)))
    assert refusals(check, two, 3, policy) == {("S3", "q")}


def test_cpu_has_a_max_of_its_own() -> None:
    policy = queue(host_quota=(CpuQuota(None, Cpu(24_000)),))
    one, two = job("one", "q", 1, 1, cpu=16), job("two", "q", 1, 1, cpu=16)
    check = LedgerCheck(of_one_node(0, one, two), policy)
    check.hold(one, 1, on_gpus(one, 0, policy).tasks)
    assert refusals(check, two, 1, policy) == {("S3", "q")}
    assert refusals(check, job("small", "q", 1, 1, cpu=8), 1, policy) == set()


@worlds(150)
@given(st.data())
def test_what_has_ended_holds_nothing_as_if_it_had_not_been(data: st.DataObject) -> None:
    """A snapshot that still shows it does not bring it back, and one that shows it no longer finds nothing to change."""
    policy, world = data.draw(policies() | policies(keeping=True)), data.draw(snapshots(elastic=True, close=True))
    after = acted_on(world, solve(world, policy, None))
    holding = [job for job in after.jobs if job.placement]
    gone = data.draw(st.lists(st.sampled_from(holding), unique_by=lambda job: job.name)) if holding else []
    names = {job.name for job in gone}
    check = LedgerCheck(after, policy)
    for ended in gone:
        check.end(ended.name, ended.attempt)
    if data.draw(st.booleans()):
        check.change(patch_between(after, msgspec.structs.replace(after, time=Instant(after.time + 1))), unseen=names)
    intents = tuple(intent for intent in after.in_flight.intents if intent.job not in names)
    in_flight = msgspec.structs.replace(after.in_flight, intents=intents)
    left = [job for job in after.jobs if job.name not in names]
    without = snapshot_of(after.time, after.nodes, left, in_flight, after.node_sets)
    if data.draw(st.booleans()):
        check.change(patch_between(after, without))
    anew = LedgerCheck(without, policy)
    for known in candidates_in(without)[:3]:
        step = bind_of(known, data.draw(anywhere(without, known)), policy)
        assert check.refused(step, known, without.time) == anew.refused(step, known, without.time)


def test_the_end_of_an_earlier_attempt_says_nothing_of_this_one() -> None:
    policy = queue()
    one, two = job("one", "q", 1, 3), job("two", "q", 1, 3)
    check = LedgerCheck(of_one_node(0, running(one, 0, policy), two), policy)
    check.end(one.name, 1)
    assert refusals(check, two, 0, policy) == set()
    check.hold(one, 2, on_gpus(one, 0, policy).tasks)
    check.end(one.name, 1)
    assert refusals(check, two, 0, policy) == {("S1", "two")}


def test_a_stop_is_over_with_the_attempt_that_it_was_asked_of() -> None:
    policy = queue(quota=(quota_of("H100", 3, 3),))
    one, two = running(job("one", "q", 1, 3), 0, policy), job("two", "q", 1, 1)
    stop = Intent("stop", one.name, 1, Instant(5), Instant(60_000), purpose="evict")
    check = LedgerCheck(of_one_node(5, one, two, intents=(stop,)), policy)
    assert refusals(check, two, 4, policy) == set()
    check.end(one.name, 1)
    check.hold(job("one", "q", 1, 3), 2, one.placement)
    assert refusals(check, two, 4, policy) == {("S3", "q")}


def test_a_snapshot_after_the_end_of_a_window_is_judged_by_the_quota_of_then() -> None:
    policy = queue(quota=(quota_of("H100", 4, 4),), hours=(hours_of("nights", [(20, 30)], quota_of("H100", most=8)),))
    there, waits = running(job("there", "q", 1, 4), 0, policy), job("comes", "q", 1, 4)
    night, morning = (of_one_node(hour * HOUR_MS, there, waits) for hour in (29, 30))
    check = LedgerCheck(night, policy)
    step = on_gpus(waits, 4, policy)
    assert check.refused(step, waits, night.time) == ()
    check.change(patch_between(night, morning))
    assert kinds(check.refused(step, waits, morning.time)) == {("S3", "q")}
