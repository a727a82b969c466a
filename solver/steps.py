"""The decision as ordered steps: what is given back and withdrawn, who leaves, who is promised what, and who is bound."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from solver.eviction import Promise
from solver.nominations import Nominations
from solver.plan.plan import Bind, Evict, Nominate, Release, Step, Withdraw
from solver.repartition import repartitions
from solver.rules.departures import Departure
from solver.rules.policy import Policy
from solver.starts import Start
from solver.world.quantities import Duration
from solver.world.room import Room
from solver.world.snapshot import Snapshot
from solver.world.workload import Job, TaskPlacement


def steps_of(
    snapshot: Snapshot,
    policy: Policy,
    departing: Iterable[Departure],
    nominations: Nominations,
    starts: Sequence[Start],
    promises: Iterable[Promise],
    room: Room,
) -> Iterator[Step]:
    """Releases come first: what a gang that never became ready gives back is free in the next round, not in this one.

    `room`: what was free before. GPUs are partitioned anew before anybody is bound.
    """
    yield from _releases(snapshot)
    for intent in nominations.withdrawn:
        yield Withdraw(intent.job, intent.attempt)
    for departure in departing:
        holder, grace = departure.holder, policy.grace(departure.holder.job)
        yield Evict(departure.name, holder.job.attempt, departure.rule, grace, holder.gpus, departure.lost_gpu_s)
    for promise in promises:
        yield from _evictions(promise, policy)
    yield from repartitions(room, starts)
    for nomination in nominations.ready:
        yield _bind(nomination.job, nomination.intent.tasks, policy)
    for start in starts:
        yield _bind(start.candidate.job, start.placed.tasks, policy)


def _releases(snapshot: Snapshot) -> Iterator[Release]:
    stopping = {(intent.job, intent.attempt) for intent in snapshot.in_flight.intents if intent.kind == "stop"}
    for intent in snapshot.in_flight.intents:
        overdue = intent.kind == "start" and intent.deadline <= snapshot.time
        if overdue and (intent.job, intent.attempt) not in stopping:
            yield Release(intent.job, intent.attempt)


def _evictions(promise: Promise, policy: Policy) -> Iterator[Step]:
    graces = [policy.scheduling.evictions.grace]
    for victim in promise.victims:
        graces.append(policy.grace(victim.holder.job))
        yield Evict(
            victim.name,
            victim.holder.job.attempt,
            victim.means,
            graces[-1],
            victim.holder.gpus,
            victim.lost_gpu_s,
            promise.job.name,
        )
    # What does not end in its grace is made to end; that takes the backend as long as starting may take it.
    deadline = Duration(max(graces) + policy.scheduling.start_deadline)
    yield Nominate(promise.job.name, promise.job.attempt + 1, promise.start.placed.tasks, deadline)


def _bind(job: Job, tasks: tuple[TaskPlacement, ...], policy: Policy) -> Bind:
    return Bind(job.name, job.attempt + 1, tasks, policy.scheduling.start_deadline, policy.time_limit(job))
