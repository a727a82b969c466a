"""Judges whether a plan keeps the order of strict queues: no job starts on what an earlier one that waits could use.

Part of the checker: the order of each queue is worked out again here, from DESIGN and the policy alone.
It needs every bound job and node to be in the snapshot.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from solver.checker.case import JudgedPlan
from solver.checker.policy_index import PolicyIndex
from solver.checker.turns import cost
from solver.checker.user_order import user_shares_for, users_in_turn
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
    tasks_of, competing = {step.job: step.tasks for step in case.placing}, _competing(case)
    of_queue: defaultdict[str, list[Job]] = defaultdict(list)
    for job in competing:
        of_queue[job.spec.queue].append(job)
    ranks = _Ranks.among(competing, case.lookup)
    for queue, by in strict.items():
        for line in _as_users_share(_in_order(of_queue[queue], by, ranks, case), by, ranks, case):
            waiting = _Waiting(case.ground.gpu_types)
            for job in line:
                if job.name not in tasks_of:
                    waiting.add(job)
                elif passed := waiting.passed_by(job, tasks_of[job.name]):
                    yield Violation("order", job.name, f"starts before {', '.join(passed)} of strict queue {queue}")


def unfair_starts(case: JudgedPlan) -> Iterator[Violation]:
    """Every job that starts where one of another user waits that asks for the very same and comes before it by fair shares.

    Only of jobs that find free what they start on: for whom others leave hangs on more than the order. No violation: order decides
    among jobs that compete, and which do is not asked here.
    """
    shared = {queue.name for queue in case.policy.queues if user_shares_for(case, queue.name) is not None}
    if not shared:
        return
    competing, bound = _competing(case), case.bound - {step.beneficiary for step in case.leaving}
    of_queue: defaultdict[str, list[Job]] = defaultdict(list)
    for job in competing:
        if job.spec.queue in shared:
            of_queue[job.spec.queue].append(job)
    ranks = _Ranks.among(competing, case.lookup)
    for queue, jobs in of_queue.items():
        by = _goes_by(case.lookup, queue)
        for line in _as_users_share(_in_order(jobs, by, ranks, case), by, ranks, case):
            passed: dict[Hashable, Job] = {}
            for job in line:
                first = passed.get(_asked(job))
                if job.name not in bound:
                    if job.name not in case.promises and not job.evicted_at:
                        passed.setdefault(_asked(job), job)
                elif first is not None and first.user != job.user and case.snapshot.time >= _open(first, case):
                    problem = (
                        f"starts before {first.name} of user {first.user or '(none)'}, who has less of queue {queue}"
                    )
                    yield Violation("users", job.name, problem)


def _open(job: Job, case: JudgedPlan) -> int:
    """From when on all its types are open to it."""
    known = case.lookup.class_of(job)
    said = (job.spec.fallback_after, known.fallback_after if known else None)
    return job.submitted_at + next((each for each in said if each is not None), case.policy.scheduling.fallback_after)


def _asked(job: Job) -> Hashable:
    spec = job.spec
    beside = job.namespace, job.namespace_labels, spec.time_limit, job.finish_by, spec.checkpoint
    return spec.priority_class, spec.type, spec.task_groups, spec.topology, spec.data, beside


def _competing(case: JudgedPlan) -> list[Job]:
    """Who takes part: what an earlier round has promised it decided before those came who would be first now."""
    named = {verdict.job for kind in (Starts, Waits) for verdict in case.verdicts(kind)}
    promised = case.promised.keys() - case.withdrawn
    return [job for job in case.pending if job.name in named and job.name not in promised]


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


def _band(job: Job, case: JudgedPlan) -> int:
    hours = max(0, case.snapshot.time - job.submitted_at) / 3_600_000
    return min(HIGHEST_BAND, int(hours * (case.lookup.class_of(job) or PriorityClass("")).aging_per_hour))


def _in_order(jobs: list[Job], by: OrderBy, ranks: _Ranks, case: JudgedPlan) -> list[Job]:
    """SLO class, rank of the value (by priority only), boosted ones, age band; then what the queue goes by, and submission."""
    classes = {job.name: case.lookup.class_of(job) or PriorityClass("") for job in jobs}

    def key(job: Job) -> tuple[float, ...]:
        slo, highest = SLO_CLASSES.index(classes[job.name].slo_class), _band(job, case)
        rank = ranks.of(job) if by == "priority" else 0
        own: float = 0
        if by == "fifo":  # whoever is behind and aged faster does not pass
            highest = 0
        elif by == "priority" and highest < HIGHEST_BAND:
            within = job.spec.finish_within
            by_then = job.spec.finish_by if within is None else job.submitted_at + within
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


def _as_users_share(line: list[Job], by: OrderBy, ranks: _Ranks, case: JudgedPlan) -> list[list[Job]]:
    """The order of a queue, as its users take turns where they share it; where that can't be told, the order of each for itself."""
    shares = user_shares_for(case, line[0].spec.queue) if line else None
    if shares is None:
        return [line]
    slo = {job.name: (case.lookup.class_of(job) or PriorityClass("")).slo_class for job in line}
    bands = {job.name: _band(job, case) for job in line}
    if by == "fifo":
        highest: defaultdict[str, int] = defaultdict(int)
        for job in sorted(line, key=lambda job: (job.submitted_at, job.name), reverse=True):
            # Whoever is behind and aged faster takes along those before it.
            bands[job.name] = highest[slo[job.name]] = max(bands[job.name], highest[slo[job.name]])
    ranked = {job.name: ranks.of(job) if by == "priority" else 0 for job in line}
    before = {job.name: (slo[job.name], ranked[job.name], job.boosted, bands[job.name]) for job in line}
    found = users_in_turn(line, before, {name for name, band in bands.items() if band == HIGHEST_BAND}, shares, case)
    return (
        [[job for job in line if job.user == user] for user in {job.user for job in line}] if found is None else [found]
    )


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
