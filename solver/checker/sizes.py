"""Judges S2 for gangs that change their size: which tasks may leave or join, and that the rest is no smaller than its minima.

Part of the checker. Beside that it takes plans apart: what joins or leaves a running gang is a job of its own there.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import msgspec

from solver.checker.case import JudgedPlan
from solver.checker.closeness import topology_violations
from solver.model.inflight import Intent
from solver.model.parts import leaving_part, part_of, shrinking_apart, without
from solver.model.quantities import Duration, Instant
from solver.model.snapshot import with_jobs
from solver.model.workload import Job, JobName, TaskPlacement, Together
from solver.plan.plan import Bind, Evict, Grow, Shrink, Step
from solver.plan.violation import Violation

Resizing = Shrink | Grow


def with_parts_apart(case: JudgedPlan) -> JudgedPlan:
    """The same world and plan, in which what joins or leaves a running gang is a job of its own, bound or evicted."""
    resizing = bool(case.steps(Shrink)) or bool(case.steps(Grow))
    if not resizing and not any(intent.kind in ("shrink", "grow") for intent in case.intents):
        return case
    world = shrinking_apart(case.snapshot)
    known = {job.name: job for job in world.jobs}
    jobs, steps = dict(known), list[Step]()
    for step in case.plan.steps:
        job = known.get(step.job) if isinstance(step, Resizing) else None
        if job is None or not isinstance(step, Resizing):
            steps.append(step)
        elif isinstance(step, Shrink):
            part = part_of(job, leaving_part(job.name), step.tasks)
            rest = msgspec.structs.replace(job, placement=without(job.placement, step.tasks))
            jobs[job.name], jobs[part.name] = rest, part
            lost = (step.gpus, step.lost_gpu_s, step.beneficiary)
            steps.append(Evict(part.name, step.attempt, "reclaim", step.grace, *lost))
        else:
            joins = part_of(job, JobName(f"{job.name}/joining"), step.tasks)
            jobs[joins.name] = msgspec.structs.replace(joins, phase="pending", placement=())
            steps.append(Bind(joins.name, step.attempt + 1, step.tasks, step.deadline, _left_of(job, world.time)))
    intents = tuple(i for i in world.in_flight.intents if i.kind not in ("shrink", "grow"))
    apart = with_jobs(world, jobs.values(), msgspec.structs.replace(world.in_flight, intents=intents))
    return replace(case, whole=case, snapshot=apart, plan=msgspec.structs.replace(case.plan, steps=tuple(steps)))


def with_late_growths_asked(case: JudgedPlan) -> JudgedPlan:
    """The same world and plan, in which what joins a gang too late was asked to leave it before: it counts for its queue no more.

    Whether it is late is for `size_violations` to judge.
    """
    late = {step.job: step for step in case.steps(Shrink) if step.means == "overdue"}
    if not late:
        return case
    now = case.snapshot.time
    joining = (i for i in case.intents if i.kind != "grow" or i.job not in late)
    leaving = (
        Intent("shrink", step.job, step.attempt, now, now.after(step.grace), step.tasks) for step in late.values()
    )
    in_flight = msgspec.structs.replace(case.snapshot.in_flight, intents=(*joining, *leaving))
    world = msgspec.structs.replace(case.snapshot, in_flight=in_flight)
    steps = tuple(step for step in case.plan.steps if not isinstance(step, Shrink) or step.means != "overdue")
    return replace(case, snapshot=world, plan=msgspec.structs.replace(case.plan, steps=steps))


def _left_of(job: Job, now: Instant) -> Duration | None:
    """How much longer a running gang may run: what joins it ends with it."""
    if job.time_limit is None or job.started_at is None:
        return None
    return Duration(max(0, job.started_at + job.time_limit - now))


def size_violations(case: JudgedPlan) -> Iterator[Violation]:
    """S2 and S11 for running gangs that change their size, each at most once in a plan, and not while that is in flight."""
    asked = {i.job for i in case.intents if i.kind in ("stop", "shrink")}
    growing: dict[JobName, Intent] = {}
    for intent in case.intents:
        if intent.kind == "grow":
            growing.setdefault(intent.job, intent)
    changing = Counter(step.job for steps in (case.leaving, case.steps(Grow)) for step in steps)
    for name in sorted(name for name, times in changing.items() if times > 1):
        yield Violation("S8", name, f"is evicted or changes its size {changing[name]} times")
    for step in case.plan.steps:
        if isinstance(step, Resizing):
            job = case.jobs[step.job]
            busy = job.name in asked or (isinstance(step, Grow) and job.name in growing)
            if job.phase != "running" or job.attempt != step.attempt or busy:
                told = f"changes its size in attempt {step.attempt} while {job.phase} or changing"
                yield Violation("S11", job.name, told)
            yield from _shrinks(step, job, growing, case) if isinstance(step, Shrink) else _grows(step, job, case)


def _shrinks(step: Shrink, job: Job, growing: Mapping[JobName, Intent], case: JudgedPlan) -> Iterator[Violation]:
    """What stays is no smaller than the minima; of what joins, only what does not become ready in time leaves again."""
    joining = growing.get(job.name)
    late = joining is not None and joining.deadline <= case.snapshot.time
    if (step.means == "overdue") != (late and joining is not None and set(step.tasks) == set(joining.tasks)):
        yield Violation(
            "S2", job.name, f"shrinks by {step.means}, and what joins it is {'' if late else 'not '}overdue"
        )
    if not step.tasks or not set(step.tasks) <= set(job.placement):
        yield Violation("S2", job.name, "shrinks by tasks that it does not hold")
    left = without(job.placement, step.tasks)
    for group in job.spec.task_groups:
        rest = [task.index for task in left if task.group == group.name]
        beyond = sum(task.group == group.name for task in job.placement) - group.least
        # A gang that was between two steps before may stay so.
        odd = (len(rest) - group.least) % group.replica_step not in (0, beyond % group.replica_step)
        if len(rest) < group.least or odd:
            yield Violation("S2", job.name, f"is left with the tasks {sorted(rest)} of group {group.name}")
    for known in job.spec.topology.together if step.means != "overdue" else ():
        torn = _units_of(job, known, step.tasks).keys() & _units_of(job, known, left).keys() if known.units > 1 else ()
        for number in sorted(torn):
            yield Violation("S2", job.name, f"keeps a part of unit {number} of groups {' and '.join(known.groups)}")


def _units_of(job: Job, known: Together, tasks: Iterable[TaskPlacement]) -> dict[int, Counter[str]]:
    """By unit of groups that are in units together how many of these tasks are of which group."""
    size = {group.name: group.replica_step for group in job.spec.task_groups}
    found = defaultdict[int, Counter[str]](Counter)
    for task in tasks:
        if task.group in known.groups:
            found[task.index // size[task.group]][task.group] += 1
    return dict(found)


def _grows(step: Grow, job: Job, case: JudgedPlan) -> Iterator[Violation]:
    """Tasks that join have numbers of their own, are on the type that their group uses, and as near as the others have to be."""
    nodes, together = case.ground.by_name, (*job.placement, *step.tasks)
    for group in job.spec.task_groups:
        tasks = [task for task in together if task.group == group.name]
        numbers = sorted(task.index for task in tasks)
        if len(set(numbers)) < len(numbers) or any(number >= group.replicas for number in numbers):
            yield Violation("S2", job.name, f"would have the tasks {numbers} of {group.replicas} of group {group.name}")
        joining = sum(task.group == group.name for task in step.tasks)
        in_units = any(known.units > 1 and group.name in known.groups for known in job.spec.topology.together)
        if joining % group.replica_step and not in_units:  # those are judged unit by unit
            told = f"group {group.name} grows by {joining} tasks, and may by {group.replica_step} at once"
            yield Violation("S2", job.name, told)
        types = {nodes[task.node].gpu_type for task in tasks if task.node in nodes and task.devices}
        if len(types) > 1:
            yield Violation("S2", job.name, f"group {group.name} is on {', '.join(sorted(types))}")
    for known in job.spec.topology.together:
        size = {group.name: group.replica_step for group in job.spec.task_groups if group.name in known.groups}
        before = _units_of(job, known, job.placement) if known.units > 1 else {}
        for number, joined in _units_of(job, known, step.tasks).items() if known.units > 1 else ():
            if joined + before.get(number, Counter()) != size:
                told = f"grows by a part of unit {number} of groups {' and '.join(known.groups)}"
                yield Violation("S2", job.name, told)
    if all(task.node in nodes for task in together):
        yield from topology_violations(job, together, nodes)
