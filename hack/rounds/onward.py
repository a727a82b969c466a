"""From one round to the next: what the plan asked for has happened, some have ended, others have come."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping

import msgspec

from hack.rounds.workload import Workload
from solver.model.cluster import DeviceId, MigInstance, Node
from solver.model.quantities import Duration, Instant
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, TaskPlacement
from solver.plan.plan import Bind, Evict, Grow, Nominate, Plan, Repartition, Shrink

BETWEEN = Duration(10_000)


class Onward:
    """The rounds of a seeded cluster. `churn`: which part of what runs ends between two of them; as many jobs come."""

    def __init__(self, workload: Workload, chance: random.Random, churn: float) -> None:
        self._workload = workload
        self._chance = chance
        self._churn = churn

    def after(self, snapshot: Snapshot, plan: Plan) -> Snapshot:
        """The next round's snapshot; who was asked to leave has left, and what was promised for its sake has begun."""
        now = snapshot.time.after(BETWEEN)
        begun = {step.job: step.tasks for step in plan.steps if isinstance(step, Bind | Nominate)}
        gone = {step.job for step in plan.steps if isinstance(step, Evict)}
        fewer = {step.job: step.tasks for step in plan.steps if isinstance(step, Shrink)}
        more = {step.job: step.tasks for step in plan.steps if isinstance(step, Grow)}
        jobs = [
            _fewer(_more(_back(job) if job.name in gone else job, more.get(job.name, ())), fewer.get(job.name, ()))
            for job in snapshot.jobs
        ]
        jobs = [_started(job, begun[job.name], now) if job.name in begun else job for job in jobs]
        made = {step.device: step.instances for step in plan.steps if isinstance(step, Repartition)}
        nodes = [_partitioned(node, made) for node in snapshot.nodes]
        staying = [job for job in jobs if job.phase == "pending" or self._chance.random() >= self._churn]
        return snapshot_of(now, nodes, [*staying, *self._arrivals(len(jobs) - len(staying), now)])

    def _arrivals(self, number: int, now: Instant) -> Iterator[Job]:
        for _ in range(number):
            yield msgspec.structs.replace(self._workload.waiting(), submitted_at=now)


def _partitioned(node: Node, made: Mapping[DeviceId, tuple[MigInstance, ...] | None]) -> Node:
    if not any(gpu.id in made for gpu in node.gpus):
        return node
    gpus = (msgspec.structs.replace(gpu, instances=made.get(gpu.id, gpu.instances)) for gpu in node.gpus)
    return msgspec.structs.replace(node, gpus=tuple(gpus))


def _back(job: Job) -> Job:
    return msgspec.structs.replace(job, phase="pending", placement=(), started_at=None)


def _started(job: Job, tasks: tuple[TaskPlacement, ...], now: Instant) -> Job:
    return msgspec.structs.replace(job, phase="running", attempt=job.attempt + 1, started_at=now, placement=tasks)


def _more(job: Job, tasks: tuple[TaskPlacement, ...]) -> Job:
    return msgspec.structs.replace(job, placement=(*job.placement, *tasks)) if tasks else job


def _fewer(job: Job, tasks: tuple[TaskPlacement, ...]) -> Job:
    leaving = {(task.group, task.index) for task in tasks}
    staying = tuple(task for task in job.placement if (task.group, task.index) not in leaving)
    return msgspec.structs.replace(job, placement=staying) if leaving else job
