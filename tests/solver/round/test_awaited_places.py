"""A start that a job is told of, once others are protected no more, does not slip for borrowed work that comes later."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import msgspec
import pytest

from solver.checker.check import violations
from solver.model.quantities import Duration, Instant
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName, QueueName
from solver.plan.estimates import EarliestStart
from solver.plan.plan import Bind, Plan, Reserve, Waits
from solver.policy.policy import Reservations, policy_of
from tests.solver.aftermath import applied, victims_gone
from tests.solver.laws.judge import production
from tests.solver.laws.worlds import MINUTE_MS, World, world_of
from tests.solver.worlds import job

GUESTS = QueueName("guests")


def shielded(number: int) -> World:
    """Queue `a` is guaranteed all there is, and wants it back from `b`, of which most is protected for some time."""
    random = Random(f"shielded/{number}")
    nodes = {f"n{place}": random.randint(3, 6) for place in range(1, random.choice((2, 2, 3)))}
    lines = ["nodes " + " ".join(f"{name}={gpus}" for name, gpus in nodes.items()), f"queue a {sum(nodes.values())}"]
    lines += ["queue b 0", "queue guests 0", "class short 0 minRuntime=60m", "class long 0 minRuntime=400m"]
    lines += ["class guest -1 minRuntime=900m"]
    for place, (name, gpus) in enumerate(nodes.items()):
        left = gpus - random.randint(1, gpus - 1)
        while left > 0:
            size = random.randint(1, left)
            age, known = random.randint(1, 300), random.choice(("short", "long"))
            lines.append(f"run b{len(lines)} b {size}@{name} for {age}.{len(lines)}m {known}")
            left -= size
        if place == 0 or random.random() < 0.3:
            lines.append(f"wait a{place} a {random.randint(2, gpus)} for {random.randint(1, 30)}m")
    snapshot, policy = world_of("\n".join(lines))
    scheduling = msgspec.structs.replace(
        policy.scheduling, reservations=Reservations(random.choice((1, 2))), estimated_jobs=9
    )
    return World(snapshot, policy_of(policy.queues, policy.priority_classes, scheduling))


def guests(number: int) -> Iterator[Job]:
    random = Random(f"guests/{number}")
    for place in range(3):
        limit = random.choice((None, None, Duration(10 * MINUTE_MS)))
        made = job(f"guest-{place}", GUESTS, 1, random.choice((1, 1, 2)), priority_class="guest", submitted=1)
        yield msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, time_limit=limit))


def told(plan: Plan) -> dict[JobName, Instant]:
    """Jobs that start once others are protected no more, for which a part of the place is kept, each with when."""
    kept = {step.job for step in plan.steps if isinstance(step, Reserve)}
    waits = [verdict for verdict in plan.verdicts if isinstance(verdict, Waits) and verdict.job in kept]
    return {
        verdict.job: verdict.estimate.at
        for verdict in waits
        if isinstance(verdict.estimate, EarliestStart) and verdict.estimate.after_protection_of is not None
    }


def after(snapshot: Snapshot, plan: Plan, at: int) -> Snapshot:
    """The world at an instant, without jobs that have reached their limits."""
    then = victims_gone(applied(snapshot, plan))
    lives = [
        known
        for known in then.jobs
        if known.time_limit is None or known.started_at is None or known.started_at + known.time_limit > at
    ]
    return snapshot_of(Instant(at), then.nodes, lives, then.in_flight, then.node_sets)


def slips(number: int) -> tuple[int, list[str]]:
    """How many were told a start, and those who start later than they were told."""
    snapshot, policy = shielded(number)
    plan = production(snapshot, policy)
    while any(isinstance(step, Bind) for step in plan.steps):
        snapshot = after(snapshot, plan, snapshot.time + 1)
        plan = production(snapshot, policy)
    promised = told(plan)
    if len(promised) != 1:
        return 0, []
    ((name, by),) = promised.items()
    snapshot = after(snapshot, plan, snapshot.time + 1)
    snapshot = snapshot_of(snapshot.time, snapshot.nodes, [*snapshot.jobs, *guests(number)], snapshot.in_flight)
    found = list[str]()
    for at in (
        snapshot.time,
        snapshot.time + 1,
        (snapshot.time + by) // 2,
        by - 30_001,
        by - 30_000,
        by - 1,
        by,
        by + 1,
    ):
        if at < snapshot.time:
            continue
        snapshot = msgspec.structs.replace(snapshot, time=Instant(at))
        plan = production(snapshot, policy)
        found += [f"world {number}: {broken}" for broken in violations(snapshot, policy, plan)]
        later = [verdict for verdict in plan.verdicts if isinstance(verdict, Waits) and verdict.job == name]
        when = later[0].estimate if later else None
        if isinstance(when, EarliestStart) and when.at > max(by, at + 30_001):
            found.append(f"world {number}: {name} was to start at {by}, and at {Instant(at)} at {when.at}")
        snapshot = after(snapshot, plan, at)
    placed = {known.name for known in snapshot.jobs if known.placement}
    return 1, found if name in placed else [*found, f"world {number}: {name} was to start at {by}, and waits"]


@pytest.mark.parametrize("worlds", [range(14), pytest.param(range(14, 250), marks=pytest.mark.thorough)])
def test_no_start_slips_for_borrowed_work_that_comes_later(worlds: range) -> None:
    seen = [slips(number) for number in worlds]
    assert [text for _, found in seen for text in found] == []
    assert sum(count for count, _ in seen) >= len(worlds) // 10
