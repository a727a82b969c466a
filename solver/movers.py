"""Which running jobs may be moved elsewhere for others, and what that loses: gangs that an eviction would not take more from."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf

from solver.rules.entitlement import Charge, Shares, charge_of_tasks
from solver.rules.entry import lets_in
from solver.rules.options import Option, option_of, options_of
from solver.rules.policy import Policy
from solver.rules.sharing import sharing_of
from solver.rules.victims import Holder, lost_gpu_s, protected
from solver.starts import held_by
from solver.strain import strain_of
from solver.world.quantities import MilliGpu
from solver.world.room import Room
from solver.world.shape import Shape
from solver.world.snapshot import Snapshot
from solver.world.workload import Job, JobName, TaskPlacement


@dataclass(frozen=True, slots=True)
class Mover:
    """A running job that may move: how it is served, with how many tasks of each group, and what moving it loses."""

    job: Job
    option: Option
    charge: Charge
    tasks: tuple[int, ...]
    strain: float
    lost_gpu_s: float
    gpus_on: Mapping[int, int] = field(hash=False)

    @property
    def name(self) -> JobName:
        """The job's."""
        return self.job.name

    @property
    def gpus(self) -> MilliGpu:
        """GPUs that it has, and will have."""
        return MilliGpu(sum(self.charge.values()))

    @property
    def likeness(self) -> object:
        """The same for jobs that find a place where the other does."""
        return self.job.spec.task_groups, self.job.spec.effective_topology, self.option, self.tasks

    def held(self, tasks: Iterable[TaskPlacement]) -> Iterator[tuple[TaskPlacement, Shape]]:
        """Some tasks of it, each with what it takes."""
        return held_by(self.job.spec, self.option, tasks)

    def leave(self, room: Room) -> None:
        """What it holds is free."""
        for task, shape in self.held(self.job.placement):
            room.give_back(task, shape)


def movers_in(snapshot: Snapshot, policy: Policy, shares: Shares, room: Room) -> Iterator[Mover]:
    """Gangs that run and may move: freely, of a preemptible class, not protected, whole GPUs, nothing in flight or above a limit.

    A service would be away with all of its replicas, and what a person works in is not restarted elsewhere.
    """
    sharing = sharing_of(policy, shares.tree, snapshot.nodes)
    types = sorted({node.gpu_type for node in snapshot.nodes if node.gpus})
    busy, gpu_types = {intent.job for intent in snapshot.in_flight.intents}, snapshot.gpu_types
    for job in snapshot.jobs:
        known = policy.priority_class(job)
        if job.phase != "running" or job.spec.type != "gang" or job.name in busy or not _has_whole_gpus(job, room):
            continue
        if known is None or not known.preemptible or protected(job, known.protection, snapshot.time):
            continue
        if job.leaves != "freely":
            continue
        charge = charge_of_tasks(job.placement, gpu_types)
        if not lets_in(shares.tree, job.spec.queue, known.name) or _is_above_a_limit(job, charge, shares):
            continue
        option = option_of(job, options_of(job.spec, types, sharing, known.slo_class), gpu_types)
        if option is not None:
            counts = Counter(task.group for task in job.placement)
            yield Mover(
                job,
                option,
                charge,
                tuple(counts[group.name] for group in job.spec.task_groups),
                strain_of(room, job.spec, job.placement),
                lost_gpu_s(Holder(job, charge, known), snapshot.time, policy.scheduling.evictions.restart_cost),
                _gpus_on(job, room),
            )


def _has_whole_gpus(job: Job, room: Room) -> bool:
    whole = all(task.share is None and task.mig is None and task.node in room.index for task in job.placement)
    return whole and any(task.devices for task in job.placement)


def _is_above_a_limit(job: Job, charge: Charge, shares: Shares) -> bool:
    """Whether a limit on what it holds is broken: once it had left, it could not start again."""
    lines = [line for gpu_type in charge for line in shares.tree.lines(job.spec.queue, gpu_type)]
    users = shares.users
    return any(shares.used.get(line, 0) > shares.ceiling.get(line, inf) for line in lines) or any(
        users.used.get(line, 0) > users.most(line) for line in users.lines(job, charge)
    )


def _gpus_on(job: Job, room: Room) -> dict[int, int]:
    gpus: dict[int, int] = defaultdict(int)
    for task in job.placement:
        gpus[room.index[task.node]] += len(task.devices)
    return dict(gpus)
