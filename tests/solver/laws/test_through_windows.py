"""Tiny worlds through the windows of quota and Reservations: plans are lawful, and no job leaves or waits for nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from itertools import combinations

import pytest

from solver.checker.check import violations
from solver.checker.policy_in_force import policy_in_force
from solver.model.cluster import DeviceId
from solver.model.snapshot import Snapshot
from solver.model.workload import Job, QueueName
from solver.plan.plan import Bind, Evict, Grow, Nominate, Plan, Reserve, Shrink, Unreserve, Waits
from solver.policy.policy import Policy
from solver.policy.reservation import DeclaredReservation
from tests.solver.aftermath import left_to_do
from tests.solver.laws.judge import greedy, production
from tests.solver.laws.loop import Decide
from tests.solver.laws.windows import Held, by_other_names, rounds_through, windowed
from tests.solver.laws.worlds import World

NEVER = 2**62


def path(policy: Policy, name: QueueName) -> Iterator[QueueName]:
    above = {queue.name: queue.parent for queue in policy.queues}
    at: QueueName | None = name
    while at is not None:
        yield at
        at = above[at]


def waits_for_nothing(held: Held) -> Iterator[str]:
    """Jobs inside their guarantees that wait beside free GPUs which no gang and no window needs, in a round that does nothing."""
    snapshot, policy, plan = held.snapshot, policy_in_force(held.policy, held.snapshot.time), held.plan
    if snapshot.in_flight.intents or any(isinstance(s, Bind | Evict | Grow | Nominate | Shrink) for s in plan.steps):
        return
    used = Counter[QueueName]()
    for job in snapshot.jobs:
        used.update(dict.fromkeys(path(policy, job.spec.queue), sum(task.gpus for task in job.placement)))
    left = {q.name: int(q.quota[0].guaranteed or 0) - used[q.name] if q.quota else 0 for q in policy.queues}
    below = {
        q.name: NEVER if not q.quota or q.quota[0].max is None else q.quota[0].max - used[q.name] for q in policy.queues
    }
    waiting = {verdict.job for verdict in plan.verdicts if isinstance(verdict, Waits)}
    for job in (job for job in snapshot.jobs if job.name in waiting and not job.evicted_at):
        (group,) = job.spec.task_groups
        wanted, queues = group.least * group.shape.gpus * 1000, list(path(policy, job.spec.queue))
        if all(min(left[name], below[name]) >= wanted for name in queues):
            off = kept_from(job, held, policy)
            free = (sum(gpu.id not in off for gpu in node.gpus) for node in snapshot.nodes if node.schedulable)
            if sum(gpus // max(1, group.shape.gpus) for gpus in free) >= group.least:
                yield f"{job.name} is inside the guarantee of {job.spec.queue}, and waits beside free GPUs"


def kept_from(job: Job, held: Held, policy: Policy) -> set[DeviceId]:
    """The GPUs that others have, and those that gangs and windows keep from a job."""
    kept = {known.holder: known.tasks for known in held.snapshot.in_flight.reservations}
    kept |= {step.job: step.tasks for step in held.plan.steps if isinstance(step, Reserve)}
    for step in held.plan.steps:
        if isinstance(step, Unreserve):
            kept.pop(step.job, None)
    off = {device for other in held.snapshot.jobs for task in other.placement for device in task.on_gpus}
    limit, now = policy.time_limit(job), held.snapshot.time
    for document in policy.reservations:
        is_gone = limit is not None and now.after(limit) <= max(now, document.start)
        if document.admits(set(path(policy, job.spec.queue)), job.user, job.name) or is_gone:
            kept.pop(document.holder, None)
    kept.pop(job.name, None)
    return off | {device for tasks in kept.values() for task in tasks for device in task.devices}


def worse_choices(held: Held) -> Iterator[str]:
    """A document whose GPUs were chosen now, though others are free earlier; of single ones, also though less is given up."""
    snapshot, policy = held.snapshot, policy_in_force(held.policy, held.snapshot.time)
    if len(policy.reservations) != 1 or policy.reservations[0].nodes or snapshot.in_flight.reservations:
        return
    (document,), size = policy.reservations, policy.reservations[0].gpus_per_node or 0
    chosen = [step.tasks for step in held.plan.steps if isinstance(step, Reserve) and step.job == document.holder]
    got = [frozenset(task.devices) for tasks in chosen for task in tasks]
    cost = {block: cost_of(block, document, snapshot, policy) for block in blocks(snapshot, size)}
    have = total(got, cost)
    for other in combinations(cost, len(got)):
        better = total(other, cost)
        worse = better < have if size == 1 else better[0] < have[0]
        if len(frozenset().union(*other)) == len(got) * size and worse:
            yield f"{document.name} keeps {sorted(map(sorted, got))}, {have}; better {sorted(map(sorted, other))}"
            return


Cost = tuple[int, Mapping[str, int]]


def blocks(snapshot: Snapshot, size: int) -> Iterator[frozenset[DeviceId]]:
    for node in snapshot.nodes:
        yield from map(frozenset, combinations([gpu.id for gpu in node.gpus] if node.schedulable else [], size))


def total(chosen: Collection[frozenset[DeviceId]], cost: Mapping[frozenset[DeviceId], Cost]) -> tuple[list[int], int]:
    """When each is free, and how many GPUs jobs give up for them together."""
    leaving: dict[str, int] = {}
    for block in chosen:
        leaving |= cost[block][1]
    return sorted(cost[block][0] for block in chosen), sum(leaving.values())


def cost_of(block: frozenset[DeviceId], document: DeclaredReservation, snapshot: Snapshot, policy: Policy) -> Cost:
    """From when it is free, and which jobs leave for that, each with its GPUs."""
    now, free, leaving = int(snapshot.time), int(document.start), dict[str, int]()
    for job in (job for job in snapshot.jobs if any(not block.isdisjoint(task.devices) for task in job.placement)):
        known, began = policy.priority_class(job), int(job.started_at or 0)
        assert known is not None
        end = NEVER if job.time_limit is None or began + job.time_limit <= now else began + int(job.time_limit)
        admitted = document.admits(set(path(policy, job.spec.queue)), job.user, job.name)
        leaves = document.evict == "all" or (document.evict == "preemptible" and known.preemptible)
        if end > document.start and leaves and not admitted:
            grace = int(policy.grace(job))
            gone = max(began + known.protection.min_runtime, now, document.start - grace) + grace
            if gone < end:
                end = gone
                leaving[job.name] = sum(task.gpus for task in job.placement)
        free = max(free, end)
    return free, leaving


def outcome(plan: Plan, names: Mapping[str, str] | None = None) -> dict[str, tuple[object, ...]]:
    """What becomes of each job, by its other name where one is given."""
    given = {
        step.job: sorted(len(t.devices) for t in step.tasks) for step in plan.steps if isinstance(step, Bind | Nominate)
    }
    return {
        (names or {}).get(str(said.job), str(said.job)): (
            type(said).__name__,
            getattr(said, "leaves_at", None),
            given.get(said.job),
        )
        for said in plan.verdicts
    }


def faults(number: int, decide: Decide, upset: int | None) -> Iterator[str]:
    """All that is wrong in the rounds of one world."""
    world = windowed(number)
    for place, held in enumerate(rounds_through(world, decide, upset)):
        found = [str(one) for one in violations(held.snapshot, held.policy, held.plan)]
        found += [*waits_for_nothing(held), *worse_choices(held)]
        yield from (f"world {number}, round {place}: {text}" for text in found)
        if place == 0:
            other, names = by_other_names(World(held.snapshot, held.policy), number)
            if outcome(held.plan, names) != outcome(decide(*other)):
                yield f"world {number}: by other names other jobs start, leave or are to leave"
    if left := left_to_do(*world):
        yield f"world {number} does not come to rest: {left}"


@pytest.mark.parametrize(
    ("worlds", "decide"),
    [
        pytest.param(range(4), production, id="production"),
        pytest.param(range(4, 7), greedy, id="greedy"),
        pytest.param(range(7, 40), production, marks=pytest.mark.thorough, id="production-more"),
        pytest.param(range(40, 70), greedy, marks=pytest.mark.thorough, id="greedy-more"),
        pytest.param(range(70, 1000), production, marks=pytest.mark.long, id="production-1000"),
    ],
)
def test_rounds_through_windows(worlds: range, decide: Decide) -> None:
    assert [text for number in worlds for text in faults(number, decide, number if number % 2 else None)] == []
