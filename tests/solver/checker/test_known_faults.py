"""The faults that rounds once had (tests/solver/laws/faults), put into plans again, and what finds each.

The checker refuses some of them, and of others the alarm tells. What neither finds is in the table too: it shows in no single plan,
or in nothing that these two count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import msgspec
import pytest

from solver.checker.alarm import findings
from solver.checker.check import violations
from solver.model.quantities import Duration, MilliGpu
from solver.model.workload import JobName
from solver.plan.plan import Bind, Evict, Nominate, Plan, Runs, Shrink, Starts, Step, Waits
from solver.plan.reasons import CapacityReason
from solver.quota import fairshare
from solver.quota.entitlement import ServedOrder
from tests.solver.laws.faults import FAULTS
from tests.solver.laws.judge import greedy, production
from tests.solver.laws.worlds import World, world_of

Patch = pytest.MonkeyPatch
Found = Literal["checker", "alarm", "neither"]


class Row(NamedTuple):
    """A fault by its number, which of its worlds, how it is put into a plan again, and what finds it."""

    number: int
    case: int
    seed: Callable[[World, Patch], Plan]
    found: Found
    rule: str = ""


def forgets(world: World, _: Patch) -> Plan:
    """Nobody leaves for the job that waits first."""
    plan = production(*world)
    waiting = {job.name for job in world.snapshot.jobs if job.phase == "pending"}
    steps = tuple(
        step for step in plan.steps if not waiting & {getattr(step, "job", ""), getattr(step, "beneficiary", "")}
    )
    verdicts = tuple(
        Waits(one.job, one.queue, ()) if one.job in waiting else Runs(one.job, one.queue) for one in plan.verdicts
    )
    return msgspec.structs.replace(plan, steps=steps, verdicts=verdicts)


def does_nothing(world: World, _: Patch) -> Plan:
    """Everything stays as it is."""
    plan = production(*world)
    verdicts = tuple(Runs(one.job, one.queue) for one in plan.verdicts)
    return msgspec.structs.replace(plan, steps=(), verdicts=verdicts)


def starts_alone(name: str) -> Callable[[World, Patch], Plan]:
    """One job starts as if no other waited."""

    def seed(world: World, _: Patch) -> Plan:
        plan = production(*world)
        jobs = tuple(job for job in world.snapshot.jobs if job.placement or job.name == name)
        alone = production(msgspec.structs.replace(world.snapshot, jobs=jobs), world.policy)
        steps = tuple(step for step in alone.steps if isinstance(step, Bind))
        assert [step.job for step in steps] == [name]
        gpus = {job.name: job.spec.gpus for job in world.snapshot.jobs}
        verdicts = tuple(
            Starts(one.job, one.queue, gpus[one.job], gpus[one.job])
            if one.job == name
            else Waits(one.job, one.queue, ())
            if isinstance(one, Starts | Waits)
            else one
            for one in plan.verdicts
        )
        return msgspec.structs.replace(plan, steps=steps, verdicts=verdicts)

    return seed


def leaves_whole(world: World, _: Patch) -> Plan:
    """The whole gang leaves where it should shrink."""
    plan = production(*world)

    def changed(step: Step) -> Step:
        if not isinstance(step, Shrink):
            return step
        return Evict(step.job, step.attempt, "reclaim", step.grace, step.gpus, step.lost_gpu_s, step.beneficiary)

    return msgspec.structs.replace(plan, steps=tuple(map(changed, plan.steps)))


def also_leaves(*names: str) -> Callable[[World, Patch], Plan]:
    """More leave for the first that is promised something than it needs."""

    def seed(world: World, _: Patch) -> Plan:
        plan = production(*world)
        promised = next(step.job for step in plan.steps if isinstance(step, Nominate))
        more = (evicted(world, name, promised) for name in names)
        return msgspec.structs.replace(plan, steps=(*plan.steps, *more))

    return seed


def leaves_instead(old: str, new: str) -> Callable[[World, Patch], Plan]:
    """Another leaves than the rules name first, and its GPUs are promised."""

    def seed(world: World, _: Patch) -> Plan:
        plan, jobs = production(*world), {job.name: job for job in world.snapshot.jobs}
        freed = iter([device for task in jobs[JobName(new)].placement for device in task.devices])
        steps = list[Step]()
        for step in plan.steps:
            if isinstance(step, Evict | Shrink) and step.job == old and step.beneficiary:
                steps.append(evicted(world, new, step.beneficiary))
            elif isinstance(step, Nominate):
                tasks = (
                    msgspec.structs.replace(task, devices=tuple(next(freed, device) for device in task.devices))
                    for task in step.tasks
                )
                steps.append(msgspec.structs.replace(step, tasks=tuple(tasks)))
            else:
                steps.append(step)
        return msgspec.structs.replace(plan, steps=tuple(steps))

    return seed


def takes_the_place_of(*names: str) -> Callable[[World, Patch], Plan]:
    """A job that could start on what is free is promised what these leave."""

    def seed(world: World, _: Patch) -> Plan:
        plan, jobs = production(*world), {job.name: job for job in world.snapshot.jobs}
        (start,) = (step for step in plan.steps if isinstance(step, Bind))
        freed = [task for name in names for task in jobs[JobName(name)].placement]
        tasks = (
            msgspec.structs.replace(task, node=other.node, devices=other.devices)
            for task, other in zip(start.tasks, freed, strict=True)
        )
        promise = Nominate(start.job, start.attempt, tuple(tasks), start.deadline)
        leaving = (evicted(world, name, start.job) for name in names)
        return msgspec.structs.replace(plan, steps=(*leaving, promise))

    return seed


def evicted(world: World, name: str, beneficiary: JobName) -> Evict:
    jobs = {job.name: job for job in world.snapshot.jobs}
    job = jobs[JobName(name)]
    gpus = MilliGpu(sum(task.gpus for task in job.placement))
    is_own = job.spec.queue == jobs[beneficiary].spec.queue
    return Evict(job.name, job.attempt, "preempt" if is_own else "reclaim", Duration(30_000), gpus, 0.0, beneficiary)


def names_decide(_: World, patch: Patch) -> Plan:
    """The odd GPU of a fair share goes to the first name, and not to the queue whose job has waited longest."""
    book = fairshare.divide
    patch.setattr(
        "solver.quota.fairshare.divide",
        lambda milli, claims: book(milli, {name: one._replace(order=ServedOrder()) for name, one in claims.items()}),
    )
    return greedy(*BY_NAMES)


def hides(world: World, _: Patch) -> Plan:
    """A verdict says what lacks, and not what protects that."""
    plan = production(*world)
    verdicts = tuple(
        msgspec.structs.replace(
            one, reasons=(CapacityReason(world.snapshot.nodes[0].gpu_type, MilliGpu(0), MilliGpu(2000)),)
        )
        if isinstance(one, Waits)
        else one
        for one in plan.verdicts
    )
    return msgspec.structs.replace(plan, verdicts=verdicts)


def spreads(world: World, _: Patch) -> Plan:
    """Each part of a GPU is on a GPU of its own."""
    plan, devices = production(*world), iter([gpu.id for node in world.snapshot.nodes for gpu in node.gpus])

    def apart(step: Step) -> Step:
        if not isinstance(step, Bind):
            return step
        tasks = (msgspec.structs.replace(task, devices=(next(devices),)) for task in step.tasks)
        return msgspec.structs.replace(step, tasks=tuple(tasks))

    return msgspec.structs.replace(plan, steps=tuple(map(apart, plan.steps)))


BY_NAMES = world_of(
    "nodes n1=5; queue a 0; queue c 0; queue d 0; run d1 d 2@n1 for 50m; run d2 d 1@n1 for 40m; run d3 d 2@n1 for 30m;"
    "wait w a 2 for 5m; wait v c 2 for 9m"
)

TABLE = (
    Row(1, 0, forgets, "alarm", "lent"),
    Row(2, 0, also_leaves("a1", "a2", "b1", "b2"), "checker", "S13"),
    Row(3, 0, names_decide, "checker", "S12"),
    Row(4, 0, leaves_instead("part", "whole"), "alarm", "harm"),
    Row(5, 0, forgets, "alarm", "idle"),
    Row(5, 1, takes_the_place_of("p0", "p1", "p2", "p3"), "alarm", "needless"),
    Row(6, 0, forgets, "alarm", "lent"),
    Row(7, 0, starts_alone("old"), "alarm", "idle"),
    Row(8, 0, does_nothing, "alarm", "lent"),
    Row(9, 0, leaves_whole, "alarm", "needless"),
    Row(10, 0, leaves_instead("b-mid", "a-low"), "alarm", "harm"),
    Row(11, 0, forgets, "alarm", "lent"),
    Row(12, 0, spreads, "alarm", "spread"),
    Row(13, 0, hides, "alarm", "hidden"),
    Row(14, 2, starts_alone("gang"), "alarm", "idle"),
    Row(15, 0, starts_alone("small"), "alarm", "fewer"),
    Row(16, 0, also_leaves("one"), "alarm", "needless"),
    Row(17, 0, leaves_instead("x1", "y1"), "checker", "S12"),
)


def test_the_table_has_every_fault() -> None:
    assert {row.number for row in TABLE} == {fault.number for fault in FAULTS}


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.number}.{row.case} {row.found}")
def test_a_known_fault_is_found_by_what_the_table_says(row: Row, monkeypatch: Patch) -> None:
    fault = next(fault for fault in FAULTS if fault.number == row.number)
    world = BY_NAMES if row.seed is names_decide else list(fault.cases())[row.case].world
    plan = row.seed(world, monkeypatch)
    # How a plan is told, and that its figures are right, is not the fault that is looked for.
    refused = {one.rule for one in violations(*world, plan)} - {"fit", "bound", "verdicts"}
    told = {one.rule for one in findings(*world, plan)}
    assert {"checker": row.rule in refused, "alarm": row.rule in told, "neither": not refused | told}[row.found], (
        refused,
        told,
    )
