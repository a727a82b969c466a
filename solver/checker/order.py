"""Judges whether a plan keeps the order of strict queues: no job starts on what an earlier one that waits could use.

Part of the checker: the order of each queue is worked out again here, from DESIGN and the policy alone.
It needs every bound job and node to be in the snapshot.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from solver.checker.case import JudgedPlan
from solver.checker.policy_index import PolicyIndex
from solver.checker.turns import cost
from solver.model.cluster import GpuType, NodeName
from solver.model.shape import Shape
from solver.model.workload import Job, JobName, TaskPlacement
from solver.plan.plan import Starts, Waits
from solver.plan.violation import Violation
from solver.policy.ordering import OrderBy, Ordering
from solver.policy.policy import SLO_CLASSES, PriorityClass

HIGHEST_BAND = 8
"""Age bands, as DESIGN has them."""

LAST_RANK = 7
"""Priority values of a queue that are told apart by SLO class and rank are eight; what is below shares the last."""


def order_violations(case: JudgedPlan) -> Iterable[Violation]:
    """Every start of a strict queue that takes what one ahead of it, waiting, could use."""
    strict = {queue.name: by for queue in case.policy.queues if (by := _strict_order(case.lookup, queue.name))}
    if not strict:
        return
    named = {verdict.job for kind in (Starts, Waits) for verdict in case.verdicts(kind)}
    tasks_of = {step.job: step.tasks for step in case.placing}
    # What an earlier round has promised it decided before those came who would be first now.
    promised = case.promised.keys() - case.withdrawn
    competing = [job for job in case.pending if job.name in named and job.name not in promised]
    of_queue: defaultdict[str, list[Job]] = defaultdict(list)
    for job in competing:
        of_queue[job.spec.queue].append(job)
    ranks = _Ranks.among(competing, case.lookup)
    for queue, by in strict.items():
        waiting = _Waiting(case.ground.gpu_types)
        for job in _in_order(of_queue[queue], by, ranks, case):
            if job.name not in tasks_of:
                waiting.add(job)
            elif passed := waiting.passed_by(job, tasks_of[job.name]):
                yield Violation("order", job.name, f"starts before {', '.join(passed)} of strict queue {queue}")


def _strict_order(lookup: PolicyIndex, name: str) -> OrderBy | None:
    """What a strict queue goes by; None where it is not strict."""
    for queue in lookup.path(name):
        if queue.ordering is not None:
            # Of those that take turns turns judges who comes first.
            return queue.ordering.by if queue.ordering.strict and queue.ordering.turns is None else None
    return None


class _Kind(NamedTuple):
    """Jobs that have the same rank."""

    queue: str
    slo_class: str
    value: int
    scope: str


@dataclass(slots=True)
class _Ranks:
    """The ranks of values, among all jobs that compete in a round: by queue, and the values of scope cluster by SLO class."""

    lookup: PolicyIndex
    kinds: Mapping[str, Iterable[_Kind]]
    across: Mapping[str, Sequence[int]]
    _known: dict[_Kind, int] = field(default_factory=dict)

    @classmethod
    def among(cls, competing: Iterable[Job], lookup: PolicyIndex) -> _Ranks:
        """Of these alone, as far as their queues go by priority and let jobs start."""
        kinds: defaultdict[str, set[_Kind]] = defaultdict(set)
        across: defaultdict[str, set[int]] = defaultdict(set)
        for kind in {_kind(lookup, job) for job in competing}:
            path = lookup.path(kind.queue)
            if path and _goes_by(lookup, kind.queue) == "priority" and all(q.stop_policy == "None" for q in path):
                kinds[kind.queue].add(kind)
                if kind.scope == "cluster":
                    across[kind.slo_class].add(kind.value)
        return cls(lookup, dict(kinds), {slo_class: sorted(values) for slo_class, values in across.items()})

    def of(self, job: Job) -> int:
        """That of one job; all that come late share the last."""
        return min(LAST_RANK, self._rank(_kind(self.lookup, job)))

    def _rank(self, mine: _Kind) -> int:
        """As many as larger values wait in the queue; with scope cluster no less than wait with it; and after all it follows."""
        if mine not in self._known:
            larger = [kind for kind in self.kinds.get(mine.queue, ()) if kind.value > mine.value]
            own = {kind.value for kind in larger}
            values = self.across.get(mine.slo_class, ()) if mine.scope == "cluster" else ()
            across = len(values) - bisect_right(values, mine.value)
            follows = [1 + self._rank(kind) for kind in larger if kind.slo_class == mine.slo_class]
            self._known[mine] = max([len(own), across, *follows])
        return self._known[mine]


def _kind(lookup: PolicyIndex, job: Job) -> _Kind:
    known = lookup.class_of(job) or PriorityClass("")
    return _Kind(job.spec.queue, known.slo_class, known.value, known.scope)


def _goes_by(lookup: PolicyIndex, name: str) -> OrderBy:
    said = (queue.ordering for queue in lookup.path(name))
    return next((ordering.by for ordering in said if ordering is not None), "priority")


def _in_order(jobs: list[Job], by: OrderBy, ranks: _Ranks, case: JudgedPlan) -> list[Job]:
    """SLO class, rank of the value (by priority only), boosted ones, age band; then what the queue goes by, and submission."""
    classes = {job.name: case.lookup.class_of(job) or PriorityClass("") for job in jobs}

    def band(job: Job) -> int:
        hours = max(0, case.snapshot.time - job.submitted_at) / 3_600_000
        return min(HIGHEST_BAND, int(hours * classes[job.name].aging_per_hour))

    def key(job: Job) -> tuple[float, ...]:
        slo, highest = SLO_CLASSES.index(classes[job.name].slo_class), band(job)
        rank = ranks.of(job) if by == "priority" else 0
        own: float = 0
        if by == "fifo":  # whoever is behind and aged faster does not pass
            highest = 0
        elif by == "priority" and highest < HIGHEST_BAND:
            by_then = job.spec.finish_by
            own = inf if by_then is None else by_then - (case.policy.time_limit(job) or 0)
        elif by == "shortest" and highest < HIGHEST_BAND:
            limit = case.policy.time_limit(job)
            own = inf if limit is None else limit
        elif by == "least-served" and highest < HIGHEST_BAND:
            own = job.served_gpu_ms
        elif by == "gittins" and highest < HIGHEST_BAND:
            own = cost(job, Ordering(by), case)
        return slo, rank, not job.boosted, -highest, own, job.submitted_at

    return sorted(sorted(jobs, key=lambda job: job.name), key=key)


class _Needs(NamedTuple):
    """All that matters of a shape here: whether it takes GPUs, and anything beside them or alone."""

    gpus: bool
    gpu_types: tuple[GpuType, ...]
    beside: bool

    @classmethod
    def of(cls, shape: Shape) -> _Needs:
        """Those of one shape."""
        return cls(shape.uses_gpus, shape.gpu_types, any(shape.beside.values()))


@dataclass(slots=True)
class _Waiting:
    """Who waits ahead, told apart only by what they could use."""

    types: Mapping[NodeName, GpuType]
    _alike: dict[frozenset[_Needs], list[tuple[int, JobName]]] = field(default_factory=dict)
    _count: int = 0

    def add(self, job: Job) -> None:
        """One more, behind all others."""
        needs = frozenset(_Needs.of(group.shape) for group in job.spec.task_groups)
        self._alike.setdefault(needs, []).append((self._count, job.name))
        self._count += 1

    def passed_by(self, job: Job, tasks: Iterable[TaskPlacement]) -> list[JobName]:
        """Those who could use something that these tasks hold, in their order."""
        needs = {group.name: _Needs.of(group.shape) for group in job.spec.task_groups}
        held = {(needs[task.group], self.types[task.node]) for task in tasks}
        passed = [
            one
            for theirs, names in self._alike.items()
            if any(_takes_from(mine, gpu_type, their) for mine, gpu_type in held for their in theirs)
            for one in names
        ]
        return [name for _, name in sorted(passed)]


def _takes_from(mine: _Needs, gpu_type: GpuType, theirs: _Needs) -> bool:
    """A task on a node of a type holds a GPU, or something beside, that the other could use."""
    if theirs.gpus:
        accepted = bool(gpu_type) and (not theirs.gpu_types or gpu_type in theirs.gpu_types)
        return accepted and (mine.gpus or mine.beside)
    return theirs.beside and mine.beside
