"""The decision as ordered steps: what is given back and withdrawn, which jobs leave, are promised something, and are bound."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import cast

from solver.backfill.nominations import Nominations
from solver.model.quantities import Duration
from solver.model.snapshot import Snapshot
from solver.model.workload import Job, TaskPlacement
from solver.plan.plan import Bind, Evict, EvictedBy, Grow, Nominate, Release, Shrink, ShrunkBy, Step, Withdraw
from solver.policy.policy import Policy
from solver.preemption.new_nomination import NewNomination
from solver.preemption.planned_evictions import PlannedEviction, promised_for, yielding
from solver.round.regrowth import GangGrowth
from solver.round.repartition import kept_promises, repartitions
from solver.round.tiers import Decision


def steps_of(
    snapshot: Snapshot,
    policy: Policy,
    leaving: Sequence[PlannedEviction],
    nominations: Nominations,
    decision: Decision,
    grown: Sequence[GangGrowth],
) -> Iterator[Step]:
    """Releases come first: what a gang that never became ready gives back is free in the next round, not in this one.

    GPUs are partitioned anew before any job is bound or grows.
    """
    yield from _releases(snapshot)
    for intent in nominations.withdrawn:
        yield Withdraw(intent.job, intent.attempt)
    for known in leaving:
        if known.moves_to:
            # First: a job that is told to leave, and not where to go on, would wait like any job that was evicted.
            yield Nominate(known.job.name, known.job.attempt + 1, known.moves_to, promised_for(known, policy))
    graces = {promise.job.name: list[Duration]() for promise in decision.promises}
    for known in leaving:
        if known.beneficiary in graces:
            graces[known.beneficiary].append(policy.grace(known.job))
        yield _leave(known, policy)
    for promise in decision.promises:
        yield _promise(promise, graces[promise.job.name], policy)
    yield from kept_promises(decision.room, nominations.ready)
    yield from repartitions(decision, grown)
    for nomination in nominations.ready:
        yield bind_of(nomination.job, nomination.intent.tasks, policy)
    for start in decision.starts:
        yield bind_of(start.candidate.job, start.placed.tasks, policy)
    for growth in grown:
        yield Grow(growth.job.name, growth.job.attempt, growth.tasks, policy.scheduling.start_deadline)


def promise_steps(promise: NewNomination, policy: Policy) -> Iterator[Evict | Nominate]:
    """Those of one promise for which whole jobs leave: who leaves, and the promise."""
    jobs = {victim.name: victim.holder.job for victim in promise.victims}
    leaving = tuple(yielding(promise, jobs))
    for known in leaving:
        if known.by != "overdue":
            yield _evict(known, known.by, policy)
    yield _promise(promise, [policy.grace(known.job) for known in leaving], policy)


def _promise(promise: NewNomination, graces: Iterable[Duration], policy: Policy) -> Nominate:
    # What does not end in its grace is made to end; that takes the backend as long as starting may take it.
    longest = max((policy.scheduling.evictions.grace, *graces))
    deadline = Duration(longest + policy.scheduling.start_deadline)
    return Nominate(promise.job.name, promise.job.attempt + 1, promise.start.placed.tasks, deadline)


def _releases(snapshot: Snapshot) -> Iterator[Release]:
    stopping = {(intent.job, intent.attempt) for intent in snapshot.in_flight.intents if intent.kind == "stop"}
    for intent in snapshot.in_flight.intents:
        overdue = intent.kind == "start" and intent.deadline <= snapshot.time
        if overdue and (intent.job, intent.attempt) not in stopping:
            yield Release(intent.job, intent.attempt)


def _leave(known: PlannedEviction, policy: Policy) -> Evict | Shrink:
    job, grace = known.job, policy.grace(known.job)
    if known.whole and known.by != "overdue":
        return _evict(known, known.by, policy)
    by, tasks = cast("ShrunkBy", known.by), known.tasks
    return Shrink(job.name, job.attempt, tasks, by, grace, known.gpus, known.lost_gpu_s, known.beneficiary, job.held)


def _evict(known: PlannedEviction, by: EvictedBy, policy: Policy) -> Evict:
    job = known.job
    grace, lost = policy.grace(job), known.lost_gpu_s
    return Evict(job.name, job.attempt, by, grace, known.gpus, lost, known.beneficiary, job.held)


def bind_of(job: Job, tasks: tuple[TaskPlacement, ...], policy: Policy) -> Bind:
    """The step by which a job that waits runs on these."""
    return Bind(
        job.name,
        job.attempt + 1,
        tasks,
        policy.scheduling.start_deadline,
        policy.time_limit(job),
        policy.idle_limit(job),
    )
