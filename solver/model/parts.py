"""Elastic gangs in parts: what they hold beyond their minima can leave task by task, or step by step, and then the gang goes on.

A part is written as a job of its own, named `JOB/GROUP/INDEX`, so that whatever is true of jobs is true of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

import msgspec

from solver.model.inflight import Intent
from solver.model.snapshot import Snapshot, with_jobs
from solver.model.workload import Job, JobName, JobSpec, TaskGroup, TaskPlacement

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
    """The tasks beyond the minima of a gang's groups: those with the highest indices. Any of them may leave without the others."""
    if len(job.placement) <= min((group.least for group in job.spec.task_groups), default=0):
        return ()
    found: list[TaskPlacement] = []
    for group in job.spec.task_groups:
        tasks = sorted((task for task in job.placement if task.group == group.name), key=lambda task: task.index)
        found += tasks[group.least :]
    return tuple(found)


def in_parts(job: Job) -> tuple[Job, ...]:
    """What the gang can't do without, and each task, or each step of tasks, that it can."""
    surplus = surplus_of(job)
    if not surplus:
        return (job,)
    return (part_of(job, job.name, without(job.placement, surplus)), *_tasks_alone(job, surplus))


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


def _tasks_alone(job: Job, tasks: Iterable[TaskPlacement]) -> Iterator[Job]:
    """Each of these tasks as a job, those of a step together; those of one group are of one spec."""
    specs = {group.name: _spec_alone(job, group) for group in job.spec.task_groups}
    steps = {group.name: group.replica_step for group in job.spec.task_groups}
    for group, mine in groupby(tasks, key=lambda task: task.group):
        for step in _steps(tuple(mine), steps[group]):
            name, spec = _name_alone(job, group, step[0].index), specs[group]
            yield msgspec.structs.replace(job, name=name, placement=step, spec=spec)


def _steps(tasks: tuple[TaskPlacement, ...], step: int) -> Iterator[tuple[TaskPlacement, ...]]:
    yield from (tasks[first : first + step] for first in range(0, len(tasks), step))


def _spec_alone(job: Job, group: TaskGroup) -> JobSpec:
    step = group.replica_step
    alone = msgspec.structs.replace(group, replicas=step, min_replicas=step)
    return msgspec.structs.replace(job.spec, task_groups=(alone,))


def _name_alone(job: Job, group: str, index: int) -> JobName:
    return JobName(f"{job.name}{_MARK}{group}{_MARK}{index:06}")


def missing_part(job: Job, group: TaskGroup, index: int) -> Job:
    """A task that a running gang lacks, as a job that waits."""
    name, spec = _name_alone(job, group.name, index), _spec_alone(job, group)
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
