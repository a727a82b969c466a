"""Elastic gangs in parts: what they hold beyond their minima can leave task by task, or unit by unit, and then the gang goes on.

A part is written as a job of its own, named `JOB/GROUP/INDEX`, so that whatever is true of jobs is true of it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from solver.model.inflight import Intent
from solver.model.snapshot import Snapshot, with_jobs
from solver.model.workload import Job, JobName, TaskGroup, TaskPlacement, Unit

_MARK = "/"
"""No name of a job has it."""


def owner_of(name: JobName) -> JobName:
    """The gang that a part belongs to; a job that is no part is its own."""
    return JobName(name.partition(_MARK)[0])


def place_in_gang(name: JobName) -> int:
    """The number of the task that a part is; 0 where it is the gang, or what that can't do without."""
    number = name.rpartition(_MARK)[2]
    return int(number) if number.isdecimal() and number != name else 0


def surplus_of(job: Job) -> tuple[TaskPlacement, ...]:
    """The tasks beyond the minima of a gang's groups: those with the highest indices. Of units of them any may leave alone."""
    return tuple(task for unit in _surplus_units(job) for task in unit)


def _surplus_units(job: Job) -> Iterator[tuple[TaskPlacement, ...]]:
    """The tasks beyond the minima, those together that leave together."""
    if len(job.placement) <= min((group.least for group in job.spec.task_groups), default=0):
        return
    for unit in job.spec.units:
        groups = [job.spec.task_groups[number] for number in unit.groups]
        if unit.numbered:
            yield from _surplus_of_groups(job, groups)
            continue
        ((group,), (step,)) = groups, unit.sizes
        tasks = sorted((task for task in job.placement if task.group == group.name), key=lambda task: task.index)
        yield from _steps(tuple(tasks[group.least :]), step)


def _surplus_of_groups(job: Job, groups: Sequence[TaskGroup]) -> Iterator[tuple[TaskPlacement, ...]]:
    """The units of several groups of which the last may leave, as long as each group keeps its least."""
    step, units = {group.name: group.replica_step for group in groups}, defaultdict[int, list[TaskPlacement]](list)
    for task in job.placement:
        if task.group in step:
            units[task.index // step[task.group]].append(task)
    left, found = Counter(task.group for unit in units.values() for task in unit), list[tuple[TaskPlacement, ...]]()
    for _, unit in sorted(units.items(), reverse=True):
        left.subtract(task.group for task in unit)
        if any(left[group.name] < group.least for group in groups):
            break
        order = [group.name for group in groups]
        found.append(tuple(sorted(unit, key=lambda task: (order.index(task.group), task.index))))
    yield from reversed(found)


def in_parts(job: Job) -> tuple[Job, ...]:
    """What the gang can't do without, and each task, or each unit of tasks, that it can."""
    surplus = tuple(_surplus_units(job))
    if not surplus:
        return (job,)
    rest = without(job.placement, (task for unit in surplus for task in unit))
    return (part_of(job, job.name, rest), *_units_alone(job, surplus))


def without(tasks: Iterable[TaskPlacement], gone: Iterable[TaskPlacement]) -> tuple[TaskPlacement, ...]:
    """The tasks that are not among those that are gone."""
    named = {(task.group, task.index) for task in gone}
    return tuple(task for task in tasks if (task.group, task.index) not in named)


def part_of(job: Job, name: JobName, tasks: tuple[TaskPlacement, ...]) -> Job:
    """Some of a gang's tasks as a job."""
    counts = {group.name: sum(task.group == group.name for task in tasks) for group in job.spec.task_groups}
    groups = tuple(
        msgspec.structs.replace(group, replicas=counts[group.name], min_replicas=counts[group.name])
        for group in job.spec.task_groups
        if counts[group.name]
    )
    return msgspec.structs.replace(
        job, name=name, placement=tasks, spec=msgspec.structs.replace(job.spec, task_groups=groups)
    )


def _units_alone(job: Job, units: Iterable[tuple[TaskPlacement, ...]]) -> Iterator[Job]:
    """Each of these units as a job; those of the same groups are of one spec."""
    firsts = {job.spec.task_groups[unit.groups[0]].name: unit for unit in job.spec.units}
    specs = {name: job.spec.one_of(unit) for name, unit in firsts.items()}
    for unit in units:
        group, spec = unit[0].group, specs.get(unit[0].group)
        name = _name_alone(job, group, unit[0].index)
        if spec is None or len(unit) < sum(known.replicas for known in spec.task_groups):
            yield part_of(job, name, unit)  # some of its tasks are gone
        else:
            yield msgspec.structs.replace(job, name=name, placement=unit, spec=spec)


def _steps(tasks: tuple[TaskPlacement, ...], step: int) -> Iterator[tuple[TaskPlacement, ...]]:
    yield from (tasks[first : first + step] for first in range(0, len(tasks), step))


def _name_alone(job: Job, group: str, index: int) -> JobName:
    return JobName(f"{job.name}{_MARK}{group}{_MARK}{index:06}")


def missing_part(job: Job, unit: Unit, number: int) -> Job:
    """Tasks that a running gang lacks, one unit of them, as a job that waits. `number`: of its first task in its first group."""
    group = job.spec.task_groups[unit.groups[0]].name
    name, spec = _name_alone(job, group, number), job.spec.one_of(unit)
    return msgspec.structs.replace(job, name=name, spec=spec, phase="pending", placement=())


def shrinking_apart(snapshot: Snapshot) -> Snapshot:
    """The same world, in which tasks that were asked to leave a gang are a job of their own that was asked to stop."""
    shrinking = {intent.job: intent for intent in snapshot.in_flight.intents if intent.kind == "shrink"}
    if not shrinking:
        return snapshot
    jobs = [part for job in snapshot.jobs for part in _leaving_apart(job, shrinking.get(job.name))]
    before = {job.name for job in snapshot.jobs}
    apart = {owner_of(job.name) for job in jobs if job.name not in before}
    stops = (_stop_of(intent) for intent in shrinking.values() if intent.job in apart)
    # What leaves is held once: by the part that was asked to stop, be it of what was to join.
    asked = (
        msgspec.structs.replace(intent, tasks=without(intent.tasks, shrinking[intent.job].tasks))
        if intent.kind in ("shrink", "grow") and intent.job in shrinking
        else intent
        for intent in snapshot.in_flight.intents
    )
    in_flight = msgspec.structs.replace(snapshot.in_flight, intents=(*asked, *stops))
    return with_jobs(snapshot, jobs, in_flight)


def leaving_part(job: JobName) -> JobName:
    """The name of what was asked to leave a gang."""
    return JobName(f"{job}{_MARK}leaving")


def _leaving_apart(job: Job, shrink: Intent | None) -> Iterator[Job]:
    leaving = tuple(task for task in job.placement if shrink and task not in without((task,), shrink.tasks))
    if not leaving:
        yield job
        return
    yield msgspec.structs.replace(job, placement=without(job.placement, leaving))
    yield msgspec.structs.replace(part_of(job, leaving_part(job.name), leaving), phase="stopping")


def _stop_of(shrink: Intent) -> Intent:
    return msgspec.structs.replace(shrink, kind="stop", job=leaving_part(shrink.job), tasks=(), purpose="evict")
