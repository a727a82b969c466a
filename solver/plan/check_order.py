"""Judges whether a plan keeps strict queues in line: nobody starts who takes what an earlier one that waits could use.

Part of the checker, and as slow and obvious: the order of each queue is worked out again here, from DESIGN and the policy alone.
It needs every bound job and node to be in the snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from solver.plan.check_entry import path_of
from solver.plan.check_turns import cost
from solver.plan.plan import Bind, Nominate, Plan, Starts, Waits, Withdraw
from solver.plan.violation import Violation
from solver.rules.ordering import OrderBy, Ordering
from solver.rules.policy import SLO_CLASSES, Policy, PriorityClass
from solver.world.cluster import GpuType, NodeName
from solver.world.snapshot import Snapshot
from solver.world.workload import Job, TaskGroup, TaskPlacement

HIGHEST_BAND = 8
"""Age bands, as DESIGN has them."""

LAST_RANK = 7
"""Priority values of a queue that are told apart by SLO class and rank are eight; what is below shares the last."""


def order_violations(snapshot: Snapshot, policy: Policy, plan: Plan) -> Iterable[Violation]:
    """Every start of a strict queue that takes what one ahead of it, waiting, could use."""
    named = {verdict.job for verdict in plan.verdicts if isinstance(verdict, Starts | Waits)}
    tasks_of = {step.job: step.tasks for step in plan.steps if isinstance(step, Bind | Nominate)}
    withdrawn = {step.job for step in plan.steps if isinstance(step, Withdraw)}
    # What an earlier round has promised it decided before those came who would be first now.
    promised = {intent.job for intent in snapshot.in_flight.intents if intent.kind == "nominate"} - withdrawn
    types = {node.name: node.gpu_type for node in snapshot.nodes}
    on_hold = {
        queue.name for queue in policy.queues if any(q.stop_policy != "None" for q in path_of(policy, queue.name))
    }
    competing = (
        job
        for job in snapshot.pending
        if job.name in named and job.name not in promised and job.spec.queue not in on_hold
    )
    ranks = _Ranks.among(competing, policy)
    for queue in policy.queues:
        by = _strict_order(policy, queue.name)
        jobs = [job for job in snapshot.jobs if by and job.spec.queue == queue.name and job.phase == "pending"]
        waiting: list[Job] = []
        for job in _in_order([job for job in jobs if job.name in named], by or "fifo", ranks, snapshot):
            if job.name in promised:
                continue
            if job.name not in tasks_of:
                waiting.append(job)
                continue
            passed = [first.name for first in waiting if _takes_from(job, tasks_of[job.name], types, first)]
            if passed:
                yield Violation("order", job.name, f"starts before {', '.join(passed)} of strict queue {queue.name}")


def _strict_order(policy: Policy, name: str) -> OrderBy | None:
    """What a strict queue goes by; None where it is not strict."""
    for queue in path_of(policy, name):
        if queue.ordering is not None:
            # Of those that take turns check_turns judges who comes first.
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
    """The ranks of values, among all jobs that compete in a round."""

    policy: Policy
    kinds: frozenset[_Kind]
    _known: dict[_Kind, int] = field(default_factory=dict)

    @classmethod
    def among(cls, competing: Iterable[Job], policy: Policy) -> _Ranks:
        """Of these alone, as far as their queues go by priority."""
        by = {str(queue.name): _goes_by(policy, queue.name) for queue in policy.queues}
        kinds = {_kind(policy, job) for job in competing}
        return cls(policy, frozenset(kind for kind in kinds if by.get(kind.queue) == "priority"))

    def of(self, job: Job) -> int:
        """That of one job; all that come late share the last."""
        return min(LAST_RANK, self._rank(_kind(self.policy, job)))

    def _rank(self, mine: _Kind) -> int:
        """As many as larger values wait in the queue; with scope cluster no less than wait with it; and after all it follows."""
        if mine not in self._known:
            larger = [kind for kind in self.kinds if kind.value > mine.value]
            alike = [kind for kind in larger if kind.slo_class == mine.slo_class]
            own = {kind.value for kind in larger if kind.queue == mine.queue}
            across = {kind.value for kind in alike if kind.scope == mine.scope == "cluster"}
            follows = [1 + self._rank(kind) for kind in alike if kind.queue == mine.queue]
            self._known[mine] = max([len(own), len(across), *follows])
        return self._known[mine]


def _kind(policy: Policy, job: Job) -> _Kind:
    known = policy.priority_class(job) or PriorityClass("")
    return _Kind(job.spec.queue, known.slo_class, known.value, known.scope)


def _goes_by(policy: Policy, name: str) -> OrderBy:
    said = (queue.ordering for queue in path_of(policy, name))
    return next((ordering.by for ordering in said if ordering is not None), "priority")


def _in_order(jobs: list[Job], by: OrderBy, ranks: _Ranks, snapshot: Snapshot) -> list[Job]:
    """SLO class, rank of the value (by priority only), boosted ones, age band; then what the queue goes by, and submission."""
    policy = ranks.policy
    classes = {job.name: policy.priority_class(job) or PriorityClass("") for job in jobs}

    def band(job: Job) -> int:
        hours = max(0, snapshot.time - job.submitted_at) / 3_600_000
        return min(HIGHEST_BAND, int(hours * classes[job.name].aging_per_hour))

    def key(job: Job) -> tuple[float, ...]:
        slo, highest = SLO_CLASSES.index(classes[job.name].slo_class), band(job)
        rank = ranks.of(job) if by == "priority" else 0
        own: float = 0
        if by == "fifo":  # whoever is behind and aged faster does not pass
            highest = 0
        elif by == "shortest" and highest < HIGHEST_BAND:
            limit = policy.time_limit(job)
            own = inf if limit is None else limit
        elif by == "least-served" and highest < HIGHEST_BAND:
            own = job.served_gpu_ms
        elif by == "gittins" and highest < HIGHEST_BAND:
            own = cost(job, Ordering(by), snapshot, policy)
        return slo, rank, not job.boosted, -highest, own, job.submitted_at

    return sorted(sorted(jobs, key=lambda job: job.name), key=key)


def _takes_from(job: Job, tasks: Iterable[TaskPlacement], types: Mapping[NodeName, GpuType], first: Job) -> bool:
    """Some task holds a GPU, CPU or memory of a node that the first could use."""
    groups = {group.name: group for group in job.spec.task_groups}
    for task in tasks:
        mine = groups[task.group].shape
        beside = bool(mine.cpu or mine.memory)
        for theirs in first.spec.task_groups:
            if theirs.shape.uses_gpus and _accepts(theirs, types[task.node]) and (mine.uses_gpus or beside):
                return True
            if not theirs.shape.uses_gpus and (theirs.shape.cpu or theirs.shape.memory) and beside:
                return True
    return False


def _accepts(group: TaskGroup, gpu_type: GpuType) -> bool:
    return bool(gpu_type) and (not group.shape.gpu_types or gpu_type in group.shape.gpu_types)
