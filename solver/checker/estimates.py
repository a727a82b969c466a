"""Judges what a plan says of earliest starts by plain counts that share no code with the forecast."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from itertools import accumulate
from typing import Self

from solver.checker.case import Charge, JudgedPlan
from solver.checker.end_times import KnownEndTimes
from solver.model.cluster import GpuType, NodeName
from solver.model.inflight import declared_name
from solver.model.parts import owner_of
from solver.model.quantities import MILLI_PER_GPU, Instant, MilliGpu
from solver.model.shape import Shape
from solver.model.workload import JobName, JobSpec, TaskPlacement
from solver.plan.estimates import EarliestStart
from solver.plan.plan import Bind, Evict, Reserve, Waits


def false_estimates(case: JudgedPlan) -> Iterable[tuple[JobName, str]]:
    """Jobs that are told a start in the past, beyond the horizon, or before as many GPUs as they need can be free."""
    now, horizon = case.snapshot.time, case.policy.scheduling.eta_horizon
    told = [
        (verdict.job, verdict.estimate)
        for verdict in case.verdicts(Waits)
        if isinstance(verdict.estimate, EarliestStart) and verdict.job in case.jobs
    ]
    if not told:
        return
    future = _Future.of(case)
    # From then on jobs may have left for one that waits until they are protected no more: who holds what is not known.
    known_until = min((estimate.at for _, estimate in told if estimate.after_protection_of is not None), default=None)
    for name, estimate in told:
        at, spec = estimate.at, case.jobs[name].spec
        if not now < at <= now + horizon:
            yield name, f"{at} is in the past or beyond the horizon"
        free = future.most_free(at, spec)
        each = ((group.min_replicas or group.replicas, group.shape) for group in spec.task_groups)
        least = MilliGpu(sum(tasks * _least_cost(shape, case) for tasks, shape in each))
        if estimate.after_protection_of is not None:
            yield from _false_ends(case, name, estimate.after_protection_of)
        elif least > free and (known_until is None or at < known_until):
            yield name, f"needs {least} GPUs; at most {MilliGpu(free)} can be free at {at}"


def _false_ends(case: JudgedPlan, name: JobName, evicted: JobName) -> Iterable[tuple[JobName, str]]:
    """Jobs that are told to start by an eviction that no rule allows, whatever protects now."""
    job = case.jobs.get(evicted)
    known = case.policy.priority_class(job) if job else None
    if job is None or not job.placement or known is None or not (known.preemptible or known.may_borrow):
        yield name, f"{evicted}, which is to leave for it, holds nothing that can be taken back"


def _least_cost(shape: Shape, case: JudgedPlan) -> int:
    """What a task takes at least: of a GPU that is oversubscribed a fraction has as much less."""
    times = max((known.oversubscription for known in case.policy.sharing), default=1.0) if shape.is_shared else 1.0
    return int(shape.cost / times)


@dataclass(frozen=True, slots=True)
class _Type:
    """The GPUs of one type on nodes that take new work: what is `free` now, and what more is by each of the instants `ends`."""

    free: int
    ends: list[int]
    more: list[int]

    @classmethod
    def of(cls, free: int, given_back: Mapping[int, int]) -> Self:
        """`given_back`: what becomes free at each instant."""
        ends = sorted(given_back)
        return cls(free, ends, list(accumulate(given_back[end] for end in ends)))

    def at(self, instant: Instant) -> int:
        """Milli-GPU that nobody is known to hold then."""
        ended = bisect_right(self.ends, instant)
        return self.free + (self.more[ended - 1] if ended else 0)


@dataclass(frozen=True, slots=True)
class _Future:
    """What is there, what runs, and what the plan binds, by type."""

    types: Mapping[GpuType, _Type]

    @classmethod
    def of(cls, case: JudgedPlan) -> Self:
        """As far as it is known."""
        closed = {node.name for node in case.ground.nodes if not node.ready or node.cordoned}
        free: defaultdict[GpuType, int] = defaultdict(int)
        for node in case.ground.nodes:
            if node.name not in closed:
                free[node.gpu_type] += MILLI_PER_GPU * len(node.gpus)
        given_back: defaultdict[GpuType, defaultdict[int, int]] = defaultdict(lambda: defaultdict(int))
        for end, charge in _holders(case, closed):
            for gpu_type, milli in charge.items():
                free[gpu_type] -= milli
                if end is not None:
                    given_back[gpu_type][end] += milli
        return cls({gpu_type: _Type.of(milli, given_back[gpu_type]) for gpu_type, milli in free.items()})

    def most_free(self, at: Instant, spec: JobSpec) -> int:
        """Milli-GPU of the types a job accepts that nobody is known to hold at an instant."""
        accepted = {gpu_type for group in spec.task_groups for gpu_type in group.shape.gpu_types}
        picky = all(group.shape.gpu_types for group in spec.task_groups if group.shape.uses_gpus)
        return sum(known.at(at) for gpu_type, known in self.types.items() if not picky or gpu_type in accepted)


def _holders(case: JudgedPlan, closed: Set[NodeName]) -> Iterator[tuple[int | None, Charge]]:
    """Who holds what of the other nodes, and when that ends at the latest as far as anybody knows; None: it may never end.

    Whoever nobody asked to stop runs until its limit; a start that is not confirmed is given the benefit of the doubt.
    """
    made = [step for step in case.steps(Reserve) if declared_name(step.job) is not None]
    now, known = case.snapshot.time, KnownEndTimes.of(case.snapshot, case.policy, made)
    asked = {step.job: now + step.grace for step in case.steps(Evict)}

    def charge(tasks: Iterable[TaskPlacement]) -> Charge:
        there = case.ground.gpu_types
        return case.ground.charge(task for task in tasks if task.node in there and task.node not in closed)

    for job in case.snapshot.jobs:
        limit = known.limit(job, job.time_limit) if job.placement else None
        if not job.placement or job.phase == "stopping" or (limit is not None and job.started_at is None):
            continue
        runs_out = None if limit is None or job.started_at is None else job.started_at + limit
        end = _first(_first(runs_out, asked.get(job.name)), known.reserved_from_of(job.placement))
        held = case.held[job.name]
        is_open = GpuType("") not in held and (not closed or closed.isdisjoint([task.node for task in job.placement]))
        yield end, held if is_open else charge(job.placement)
    for step in case.steps(Bind):
        job = case.jobs[step.job]
        limit = known.limit(job, step.time_limit)
        # What joins a gang ends with it, and how long its like have run counts from the gang's start.
        began = now if step.time_limit is not None or job.started_at is None else job.started_at
        gang = case.jobs[owner_of(step.job)]
        reserved = known.reserved_from_of((*gang.placement, *step.tasks))
        yield _first(None if limit is None else began + limit, reserved), charge(step.tasks)


def _first(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)
