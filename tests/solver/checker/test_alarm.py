"""What plans fall short of: found where somebody waits or leaves for nothing, and never where trying everything finds nothing."""

from __future__ import annotations

import msgspec
import pytest

from solver.checker.alarm import findings
from solver.checker.check import violations
from solver.milp.highs import optimise
from solver.model.cluster import DeviceId
from solver.model.quantities import Duration, MilliGpu
from solver.model.snapshot import with_jobs
from solver.model.workload import JobName, QueueName, TaskPlacement
from solver.plan.plan import Bind, Evict, Nominate, Plan, Runs, Shrink, Starts, Waits
from solver.round.solve import solve
from tests.drawn import parted
from tests.solver.laws.generator import drawn
from tests.solver.laws.judge import judged, production
from tests.solver.laws.worlds import World, world_of

KINDS = {
    "idle": ("idle-beside", "entitled-fits-free"),
    "lent": ("entitled-waits", "share-waits", "growth-waits"),
    "fewer": ("fewer-entitled",),
    "hidden": (),
    "needless": ("needless",),
    "harm": ("not-least-harm", "needless"),
    "spread": (),
}
"""By kind of shortfall, what the judge of tiny worlds calls it."""


def plan_of(world: World) -> Plan:
    return solve(world.snapshot, world.policy, optimise)


def found(world: World, plan: Plan) -> list[tuple[str, str]]:
    return [(one.rule, one.subject) for one in findings(world.snapshot, world.policy, plan)]


def without(plan: Plan, *jobs: str) -> Plan:
    """The plan as if nobody had thought of these: they wait, and nobody leaves for them."""
    forgotten = set(jobs)
    gone = {step.job for step in plan.steps if isinstance(step, Evict | Shrink) and step.beneficiary in forgotten}
    steps = tuple(step for step in plan.steps if getattr(step, "job", "") not in forgotten | gone)
    queues = {verdict.job: verdict.queue for verdict in plan.verdicts}
    verdicts = tuple(
        Waits(verdict.job, queues[verdict.job], ())
        if verdict.job in forgotten
        else Runs(verdict.job, queues[verdict.job])
        if verdict.job in gone
        else verdict
        for verdict in plan.verdicts
    )
    return msgspec.structs.replace(plan, steps=steps, verdicts=verdicts)


WAITS = {
    "beside free GPUs": ("nodes n1=4; queue a 2; queue b 0; run b1 b 2@n1 for 9m; wait w a 2 for 9m", "idle"),
    "not preemptible beside free GPUs": (
        "nodes n1=4 n2=4; class firm 0 fixed; queue a 2; queue b 0; run a1 a 2@n1 for 50m; wait w a 2x1 for 9m firm",
        "idle",
    ),
    "beside free GPUs, inside its fair share": (
        "nodes n1=4; queue a 0; queue b 0; run b1 b 2@n1 for 9m; wait w a 2 for 9m",
        "idle",
    ),
    "beside what was lent": (
        "nodes n1=2 n2=2; queue a 2; queue b 0; run b1 b 1@n1 for 50m; run b2 b 1@n1 for 40m;"
        "run b3 b 2@n2 for 30m; wait w a 2x1 for 9m",
        "lent",
    ),
    "beside tasks that a gang can do without": (
        "nodes n1=4; queue a 2; queue b 0; run e b 1-4x1@n1,n1,n1,n1 for 50m; wait w a 2 for 9m",
        "lent",
    ),
    "beside what queues have above their fair share": (
        "nodes n1=4; queue a 0; queue b 0; run b1 b 1@n1 for 50m; run b2 b 1@n1 for 40m; run b3 b 1@n1 for 30m;"
        "run b4 b 1@n1 for 20m; wait w a 2 for 9m",
        "lent",
    ),
}


@pytest.mark.parametrize("about", WAITS)
def test_a_job_that_waits_and_need_not_is_found(about: str) -> None:
    text, kind = WAITS[about]
    world = world_of(text)
    plan = plan_of(world)
    assert found(world, plan) == []
    spoiled = without(plan, "w")
    assert found(world, spoiled) == [(kind, "w")]
    # Nobody is harmed by it: the plan may be acted on.
    assert {one.rule for one in violations(world.snapshot, world.policy, spoiled)} <= {"fit", "bound"}


MAY_WAIT = {
    "its queue is full": "nodes n1=4; queue a 2 max=2; queue b 0; run a1 a 2@n1 for 50m; wait w a 1 for 9m",
    "no node has room": (
        "nodes n1=2 n2=2; rules moves=0; queue a 4; run a1 a 1@n1 for 50m; run a2 a 1@n2 for 50m; wait w a 2 for 9m"
    ),
    "what is lent is protected": (
        "nodes n1=2; class safe 0 minRuntime=90m; queue a 2; queue b 0; run b1 b 2@n1 for 50m safe; wait w a 2 for 9m"
    ),
    "who could leave is too large": (
        "nodes n1=4; queue a 1; queue b 3; run b1 b 3@n1 for 50m; run b2 b 1@n1 for 90m; wait w a 2 for 9m"
    ),
    "others hold no more than their share": (
        "nodes n1=4; queue a 0; queue b 0; run a1 a 2@n1 for 50m; run b1 b 2@n1 for 40m; wait w a 1 for 9m"
    ),
    "its queue takes guarantees back alone": (
        "nodes n1=2; rules reclaim=guaranteed; queue a 0; queue b 0; run b1 b 1@n1 for 50m; run b2 b 1@n1 for 40m;"
        "wait w a 1 for 9m"
    ),
}


@pytest.mark.parametrize("about", MAY_WAIT)
def test_nobody_is_accused_who_has_to_wait(about: str) -> None:
    world = world_of(MAY_WAIT[about])
    plan = plan_of(world)
    assert any(isinstance(verdict, Waits) for verdict in plan.verdicts)
    assert found(world, plan) == []


def test_a_job_that_leaves_for_nothing_is_found() -> None:
    world = world_of(
        "nodes n1=4; queue a 1; queue b 0; run b1 b 1@n1 for 50m; run b2 b 3@n1 for 40m; wait w a 1 for 9m"
    )
    plan = plan_of(world)
    (step,) = (step for step in plan.steps if isinstance(step, Evict))
    assert found(world, plan) == []
    other = msgspec.structs.replace(step, job=next(job.name for job in world.snapshot.jobs if job.name == "b2"))
    more = msgspec.structs.replace(plan, steps=(*plan.steps, other))
    # Either of them could stay.
    assert found(world, more) == [("needless", "b1"), ("needless", "b2")]


def test_a_gang_that_leaves_and_could_shrink_is_found() -> None:
    world = world_of("nodes n1=4; queue a 2; queue b 0; run e b 2-4x1@n1,n1,n1,n1 for 50m; wait w a 2 for 9m")
    plan = plan_of(world)
    (step,) = (step for step in plan.steps if isinstance(step, Shrink))
    leaves = Evict(step.job, step.attempt, "reclaim", step.grace, step.gpus, step.lost_gpu_s, step.beneficiary)
    changed = tuple(leaves if one is step else one for one in plan.steps)
    assert found(world, plan) == []
    assert found(world, msgspec.structs.replace(plan, steps=changed)) == [("needless", "e")]


def test_a_unit_that_leaves_whole_is_needed_where_one_of_its_tasks_could_stay() -> None:
    world = world_of("nodes n1=4; queue a 2; queue b 0; run e b 2-4x1@n1,n1,n1,n1 for 50m; wait w a 1 for 9m")
    (running,) = (job for job in world.snapshot.jobs if job.name == "e")
    group = msgspec.structs.replace(running.spec.task_groups[0], replica_step=2)
    spec = msgspec.structs.replace(running.spec, task_groups=(group,))
    jobs = [msgspec.structs.replace(job, spec=spec) if job is running else job for job in world.snapshot.jobs]
    world = World(with_jobs(world.snapshot, jobs, world.snapshot.in_flight), world.policy)
    plan = plan_of(world)
    (step,) = (step for step in plan.steps if isinstance(step, Shrink))
    assert len(step.tasks) == 2
    assert found(world, plan) == []


def test_work_is_needed_that_gives_another_job_of_its_queue_a_right() -> None:
    """For w one of two leaves, though a node has room; but its own queue has a right to what v gets only since it leaves."""
    world = world_of(
        "nodes n1=2 n2=2; class top 1; queue a 1; queue b 1; run b1 b 1@n1 for 50m; run b2 b 1@n1 for 90m;"
        "wait w a 1 for 9m; wait v b 1 for 8m top"
    )
    jobs = {job.name: job for job in world.snapshot.jobs}
    plan, free = plan_of(world), world.snapshot.nodes[1]
    leaves = Evict(JobName("b1"), 1, "reclaim", Duration(30_000), MilliGpu(1000), 0.0, JobName("w"))
    takes = Nominate(JobName("w"), 1, jobs[JobName("b1")].placement, Duration(60_000))
    starts = Bind(JobName("v"), 1, (TaskPlacement("worker", 0, free.name, (free.gpus[0].id,)),), Duration(60_000))
    alone = msgspec.structs.replace(plan, steps=(leaves, takes), verdicts=())
    both = msgspec.structs.replace(plan, steps=(leaves, takes, starts), verdicts=())
    assert found(world, alone) == [("needless", "b1")]
    assert found(world, both) == []


STARVED = "nodes n1=3; queue a 3; queue b 0; run lent b 1@n1 for 200m; wait big a 3 for 90m; wait small a 1 for 5m"


def test_a_gang_behind_smaller_jobs_of_its_queue_is_found() -> None:
    world = world_of(STARVED)
    small = world_of(STARVED.replace("wait big a 3 for 90m; ", ""))
    plan, alone = plan_of(world), plan_of(small)
    assert found(world, plan) == []
    verdicts = (*alone.verdicts, Waits(JobName("big"), QueueName("a"), ()))
    assert found(world, msgspec.structs.replace(alone, verdicts=verdicts)) == [("fewer", "big")]


def test_work_without_gpus_beside_a_guarantee_is_found() -> None:
    world = world_of("nodes n1=8; queue a 8; queue b 0; run hog b 0@n1 for 90m cpu=90; wait w a 8 for 9m cpu=64")
    plan = plan_of(world)
    assert found(world, plan) == []
    assert found(world, without(plan, "w")) == [("lent", "w")]


@pytest.mark.parametrize("asked", ["1 for 9m cpu=48", "8 for 9m cpu=97"])
def test_nobody_is_accused_who_asks_for_more_cores_than_gpus_carry(asked: str) -> None:
    world = world_of(f"nodes n1=8; queue a 8; queue b 0; run hog b 0@n1 for 90m cpu=90; wait w a {asked}")
    assert found(world, plan_of(world)) == []


SHIELDED = (
    "nodes n1=2; class safe 0 minRuntime=20m; queue a 2; queue b 0; run b1 b 2@n1 for 10m safe; wait w a 2 for 2m"
)


def test_a_wait_for_the_end_of_a_protection_is_told() -> None:
    world = world_of(SHIELDED)
    plan = plan_of(world)
    assert found(world, plan) == []
    silent = tuple(Waits(one.job, one.queue, ()) if isinstance(one, Waits) else one for one in plan.verdicts)
    assert found(world, msgspec.structs.replace(plan, verdicts=silent)) == [("hidden", "w")]


LESS_HARM = {
    "less that is lost": (
        "nodes n1=2; queue a 1; queue b 0; run b1 b 1@n1 for 90m; run b2 b 1@n1 for 9m; wait w a 1 for 5m",
        "b1",
    ),
    "a part of a GPU": (
        "nodes n1=2; rules shared; queue a 1; queue b 0; run b1 b 1@n1 for 90m; run b2 b 0.5@n1/1 for 9m; wait w a 1 for 5m",
        "b1",
    ),
    "work across a line before its own": (
        "nodes n1=12; class low -1; class high 1; queue a 6; queue b 6; run a1 a 3@n1 for 90m low; run b1 b 3@n1 for 80m low;"
        "run b2 b 4@n1 for 70m high; wait w a 3 for 30m high",
        "a1",
    ),
}


@pytest.mark.parametrize("about", LESS_HARM)
def test_work_that_leaves_in_the_place_of_other_is_found(about: str) -> None:
    text, name = LESS_HARM[about]
    world = world_of(text)
    plan, jobs = plan_of(world), {job.name: job for job in world.snapshot.jobs}
    (step,) = (step for step in plan.steps if isinstance(step, Evict))
    assert found(world, plan) == []
    other, tasks = jobs[JobName(name)], iter([d for task in jobs[JobName(name)].placement for d in task.devices])
    assert step.job != other.name
    changed = [
        msgspec.structs.replace(one, job=other.name, gpus=MilliGpu(sum(task.gpus for task in other.placement)))
        if one is step
        else msgspec.structs.replace(
            one,
            tasks=tuple(
                msgspec.structs.replace(task, devices=tuple(next(tasks, known) for known in task.devices))
                for task in one.tasks
            ),
        )
        if isinstance(one, Nominate)
        else one
        for one in plan.steps
    ]
    assert found(world, msgspec.structs.replace(plan, steps=tuple(changed))) == [("harm", name)]


def test_parts_on_more_gpus_than_it_takes_are_found() -> None:
    world = world_of("nodes n1=4; rules shared; queue a -; run f0 a 0.25@n1/0 for 9m; wait f1 a 0.5 for 5m")
    plan = plan_of(world)
    assert found(world, plan) == []
    (start,) = (step for step in plan.steps if isinstance(step, Bind))
    assert start.tasks[0].devices == ("n1/0",)
    tasks = (msgspec.structs.replace(start.tasks[0], devices=(DeviceId("n1/3"),)),)
    changed = msgspec.structs.replace(plan, steps=(msgspec.structs.replace(start, tasks=tasks),))
    assert found(world, changed) == [("spread", "f1")]


ACROSS = "nodes n1=4; queue a 2; queue b 2; run a0 a 1@n1 for 90m; run b0 b 1@n1 for 80m; wait old a 2 for 50m"


def test_what_starts_beyond_its_guarantee_does_not_come_before_what_lies_inside() -> None:
    world = world_of(
        "nodes n1=4; queue a 2; queue b 2; run a0 a 1@n1 for 90m; run b0 b 1@n1 for 80m; wait old a 2 for 50m; wait w b 1 for 5m"
    )
    plan = plan_of(world)
    (start,) = (step for step in plan.steps if isinstance(step, Bind | Nominate))
    assert start.job == "w"
    (waiting,) = (job for job in world.snapshot.jobs if job.name == "old")
    alone = world_of(
        "nodes n1=4; queue a 2; queue b 2; run a0 a 1@n1 for 90m; run b0 b 1@n1 for 80m; wait old a 2 for 50m"
    )
    (across,) = (step for step in plan_of(alone).steps if isinstance(step, Bind))
    verdicts = tuple(
        Starts(one.job, one.queue, waiting.spec.gpus, waiting.spec.gpus)
        if one.job == "old"
        else Waits(one.job, one.queue, ())
        for one in plan.verdicts
        if one.job in ("old", "w")
    )
    assert found(world, msgspec.structs.replace(plan, steps=(across,), verdicts=verdicts)) == [("idle", "w")]


WORLDS = pytest.mark.parametrize(
    "numbers", [*parted(30, 80), pytest.param(range(2400), marks=pytest.mark.long, id="2400")]
)


@WORLDS
@pytest.mark.parametrize("parts", [False, True])
def test_random_worlds_at_rest_are_accused_of_nothing_that_trying_everything_does_not_find(
    parts: bool, numbers: range
) -> None:
    for number in numbers:
        course, told = judged(drawn(number, parts=parts), rename=None)
        if course.rests:
            world = World(course.end, course.world.policy)
            known = {finding.kind for finding in told if finding.number == 0}
            for rule, job in found(world, production(*world)):
                assert known & set(KINDS[rule]), f"world {number}: {rule} {job}"


@pytest.mark.parametrize(
    ("worlds", "known"),
    [(30, 0), pytest.param(80, 0, marks=pytest.mark.thorough), pytest.param(2400, 5, marks=pytest.mark.long)],
    ids=["30", "80", "2400"],
)
def test_random_rounds_are_accused_of_nothing_that_trying_everything_does_not_find(worlds: int, known: int) -> None:
    """`known`: three jobs that are not preemptible start a round later than they could; two that leave could have stayed."""
    wrong = []
    for number in range(worlds):
        course, told = judged(drawn(number), rename=None)
        for place, held in enumerate(course.rounds, 1):
            kinds = {finding.kind for finding in told if finding.number == place}
            for rule, job in found(World(held.snapshot, held.policy), held.plan):
                if not kinds & set(KINDS[rule]):
                    wrong.append(f"world {number}, round {place}: {rule} {job}")
    assert len(wrong) <= known, wrong
