"""Running elastic gangs grow: into what is free once everything that could start has started, or was promised its room.

Inside guarantees first, then inside fair shares, then into what is left over; never by an eviction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from solver.backfill.eligibility import ends_in, held_back
from solver.backfill.reservation_documents import document_reservations, kept_from
from solver.capacity.sharing import sharing_of
from solver.model.parts import owner_of
from solver.model.quantities import MilliGpu
from solver.model.shape import Shape
from solver.model.snapshot import Snapshot
from solver.model.workload import Job, QueueName, TaskPlacement
from solver.placement.growth import Lines as GrowthLines
from solver.placement.growth import grow_all
from solver.placement.placement import PlacedGang
from solver.placement.starts import JobStart, held_by
from solver.policy.policy import Policy
from solver.policy.precedence import ordering_of
from solver.policy.tree import QueueTree
from solver.queueing.demand import StartCandidate, in_order
from solver.queueing.entry import lets_in
from solver.queueing.loans import loans_in
from solver.quota.entitlement import Charge, QuotaHeadroom
from solver.quota.options import Option, option_of, options_of
from solver.quota.users import UserRoom
from solver.round.tiers import Decision

LINES: tuple[GrowthLines | None, ...] = (lambda headroom: headroom.entitled, lambda headroom: headroom.fair, None)
"""What is grown into, in this order."""


@dataclass(frozen=True, slots=True)
class GangGrowth:
    """A running gang as it will be, with the tasks that join it and what they cost its queue."""

    after: JobStart
    tasks: tuple[TaskPlacement, ...]
    charge: Charge

    @property
    def job(self) -> Job:
        """The gang."""
        return self.after.candidate.job

    @property
    def gpus(self) -> MilliGpu:
        """GPUs that it gets beside what it has."""
        return MilliGpu(sum(task.gpus for task in self.tasks))

    @property
    def held(self) -> Iterator[tuple[TaskPlacement, Shape]]:
        """The tasks that join, each with what it takes."""
        return held_by(self.job.spec, self.after.option, self.tasks)


def growths(
    snapshot: Snapshot, policy: Policy, candidates: Sequence[StartCandidate], decision: Decision
) -> tuple[GangGrowth, ...]:
    """Who grows after a decided round. `snapshot`: the world in which its victims have been asked to leave."""
    able = [(job, (option,)) for job, option in _able(snapshot, policy, candidates, decision)]
    if not able:
        return ()
    room = decision.room.copy()
    headroom, users = QuotaHeadroom(decision.shares), UserRoom(decision.shares.users)
    decision.take(room)
    for start in (*decision.starts, *(promise.start for promise in decision.promises)):
        headroom.take(start.queue, start.charge)
        users.take(start.candidate.job, start.charge, start.beside)
    before = [_as_start(c) for c in _held_back(able, snapshot, policy, candidates, decision)]
    after = before
    for lines in LINES:
        after = grow_all(after, room, headroom, users, lines)
    return tuple(_growth(old, new) for old, new in zip(before, after, strict=True) if new.tasks != old.tasks)


def _held_back(
    able: Sequence[tuple[Job, tuple[Option, ...]]],
    snapshot: Snapshot,
    policy: Policy,
    candidates: Sequence[StartCandidate],
    decision: Decision,
) -> tuple[StartCandidate, ...]:
    """They come after all that wait, and reservations hold them back as they do those."""
    ordered, declared = in_order(able, policy, decision.shares, snapshot.time), document_reservations(snapshot)
    growing = kept_from(ordered, declared, policy, decision.shares.tree, snapshot.time)
    reserved = [held for held in snapshot.in_flight.reservations if held.holder in decision.room.reserved]
    if not reserved:
        return growing
    everybody, ends = (*candidates, *growing), ends_in(snapshot, loans_in(snapshot, policy, decision.shares))
    held = held_back(everybody, reserved, ends, policy, decision.shares, decision.room, snapshot.time)
    return held[len(candidates) :]


def _able(
    snapshot: Snapshot, policy: Policy, candidates: Sequence[StartCandidate], decision: Decision
) -> Iterator[tuple[Job, Option]]:
    """Running gangs that are not at their full size, and of which nothing is in flight; each as it is served now."""
    tree = decision.shares.tree
    busy = {intent.job for intent in snapshot.in_flight.intents}
    started = {start.candidate.job.name for start in decision.starts}
    in_line = {c.job.spec.queue for c in candidates if c.strict and c.job.name not in started}
    sharing = sharing_of(policy, tree, snapshot.nodes)
    types, type_of = {node.gpu_type for node in snapshot.nodes if node.gpus}, snapshot.gpu_types
    for job in snapshot.jobs:
        if job.phase != "running" or job.name in busy or not _may_be_larger(job) or job.name != owner_of(job.name):
            continue
        known, queue = policy.priority_class(job), job.spec.queue
        if known is None or queue in in_line or not _lets_in(tree, queue, known.name):
            continue
        if any(task.node not in decision.room.index for task in job.placement):
            continue
        option = option_of(job, options_of(job.spec, types, sharing, known.slo_class), type_of)
        if option is not None:
            yield job, option


def _lets_in(tree: QueueTree, queue: QueueName, priority_class: str) -> bool:
    """Whether the queue would let such a job start now. Whose jobs take turns does not: the next turn would take it back."""
    return lets_in(tree, queue, priority_class) and ordering_of(tree, queue).turns is None


def _may_be_larger(job: Job) -> bool:
    """Some tasks are missing, and where new ones go is settled by the rest: bundles have to be whole for that."""
    groups, counts = job.spec.task_groups, Counter([task.group for task in job.placement])
    if all(counts[group.name] >= group.replicas for group in groups):
        return False
    gaps = any(task.index >= counts[task.group] for task in job.placement)
    bundled = any(job.spec.bundle_of(group) for group in groups)
    instances = any(group.shape.mig is not None for group in groups)
    return not (gaps and bundled) and not instances


def _as_start(candidate: StartCandidate) -> JobStart:
    """A running gang, as one that has just started: its tasks are the first, and the rest is missing."""
    job = candidate.job
    counts = Counter(task.group for task in job.placement)
    sizes = tuple(counts[group.name] for group in job.spec.task_groups)
    return JobStart(candidate, candidate.options[0], PlacedGang(job.placement, strain=0.0), sizes)


def _growth(before: JobStart, after: JobStart) -> GangGrowth:
    known = {(task.group, task.index) for task in before.placed.tasks}
    tasks = tuple(task for task in after.placed.tasks if (task.group, task.index) not in known)
    charge = {gpu_type: milli - before.charge[gpu_type] for gpu_type, milli in after.charge.items()}
    return GangGrowth(after, tasks, charge)


def with_grown(snapshot: Snapshot, grown: Sequence[GangGrowth]) -> Snapshot:
    """The world in which they have what they grow by."""
    if not grown:
        return snapshot
    more = {growth.job.name: growth.tasks for growth in grown}
    jobs = (
        msgspec.structs.replace(job, placement=(*job.placement, *more[job.name])) if job.name in more else job
        for job in snapshot.jobs
    )
    return msgspec.structs.replace(snapshot, jobs=tuple(jobs))
