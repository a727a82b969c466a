"""Tiny worlds in which windows of quota and of Reservations begin and end, and their rounds through each of these times.

A world is that of the laws' generator, whose queues say another quota by night, and beside which documents keep capacity. Jobs
have time limits and protections, so that some are in the way of a window and some are not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random
from typing import NamedTuple

import msgspec

from solver.model.inflight import declared_name
from solver.model.quantities import Duration, Instant, MilliGpu
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName, QueueName
from solver.plan.plan import Bind, Evict, Grow, Plan, Shrink
from solver.policy.harm import Convergence, Evictable, Protection
from solver.policy.policy import Policy, PriorityClass, Queue, QuotaHours, QuotaRow, Reservations, policy_of
from solver.policy.repeat import Repeat, RepeatedWindow
from solver.policy.reservation import DeclaredReservation
from solver.policy.windows import moments, quota_in
from tests.solver.aftermath import applied, victims_gone
from tests.solver.laws.generator import drawn
from tests.solver.laws.loop import Decide
from tests.solver.laws.renaming import renamed
from tests.solver.laws.worlds import MINUTE_MS, TYPE, World

ROUNDS_MAX = 14
TIMES = (-600, -60, 0, 1, 2, 30, 45, 90, 240, 500)
"""Minutes from now at which windows begin and end."""


EVICTS: tuple[Evictable, ...] = ("none", "preemptible", "preemptible", "all")


def windowed(number: int, seed: int = 0) -> World:
    """World `number` of a seed: that of the generator, with windows."""
    random = Random(f"windows/{seed}/{number}")
    snapshot, policy = drawn(number, seed)
    jobs = [_timed(job, random) for job in snapshot.jobs]
    classes = tuple(_protecting(known, random) for known in policy.priority_classes)
    scheduling = msgspec.structs.replace(
        policy.scheduling,
        reservations=Reservations(random.choice((0, 1, 2))),
        estimated_jobs=9,
        convergence=Convergence(
            Duration(random.choice((0, 0, 30, 1440)) * MINUTE_MS), random.choice(("none", "preemptible"))
        ),
    )
    queues = _with_hours(policy.queues, sum(len(node.gpus) for node in snapshot.nodes), random)
    documents = tuple(_documents(snapshot, queues, random))
    timed = policy_of(queues, classes, scheduling, policy.sharing, reservations=documents)
    return World(snapshot_of(snapshot.time, snapshot.nodes, jobs), timed)


def _timed(job: Job, random: Random) -> Job:
    """With a user, half of them with a limit, and some with a time to have ended by."""
    user = random.choice(("ada", "bob", ""))
    left = Duration(random.choice((5, 20, 60, 200)) * MINUTE_MS)
    by = Instant(random.choice((10, 100, 900)) * MINUTE_MS) if random.random() < 0.2 else None
    limited = random.random() < 0.5
    if not job.placement:
        spec = msgspec.structs.replace(job.spec, time_limit=left if limited else None, finish_by=by)
        return msgspec.structs.replace(job, spec=spec, user=user)
    ran = -(job.started_at or 0)
    limit = Duration(ran + left) if limited else None
    spec = msgspec.structs.replace(job.spec, time_limit=limit, finish_by=by)
    return msgspec.structs.replace(job, spec=spec, user=user, time_limit=limit)


def _protecting(known: PriorityClass, random: Random) -> PriorityClass:
    if random.random() < 0.6:
        return known
    protection = Protection(Duration(random.choice((5, 30, 120)) * MINUTE_MS))
    after = Duration(random.choice((0, 0, 10, 60)) * MINUTE_MS)
    return msgspec.structs.replace(known, protection=protection, preempt_after=after or None)


def _times(random: Random) -> tuple[RepeatedWindow, ...]:
    edges = sorted(random.sample(TIMES, 2 * random.choice((1, 1, 2))))
    return tuple(_window(*edges[place : place + 2]) for place in range(0, len(edges), 2))


def _window(start: int, until: int) -> RepeatedWindow:
    return RepeatedWindow(Instant(start * MINUTE_MS), Instant(until * MINUTE_MS))


def _repeat(times: tuple[RepeatedWindow, ...]) -> Repeat:
    return Repeat("", Duration(times[0].until - times[0].start), "UTC", times)


def _with_hours(queues: tuple[Queue, ...], gpus: int, random: Random) -> tuple[Queue, ...]:
    """Queues of which some say another quota in the same windows; as they were where that would not be lawful."""
    times, known = _times(random), list(queues)
    for place, queue in enumerate(queues):
        if random.random() < 0.6 and queue.quota and not queue.quota[0].shared:
            (entry,) = queue.quota
            guaranteed = random.choice((None, 0, random.randint(0, gpus), random.randint(0, gpus)))
            most = random.choice((None, None, random.randint(0, gpus)))
            least = (guaranteed or 0) if guaranteed is not None else int(entry.guaranteed or 0) // 1000
            own = times if random.random() < 0.7 else _times(random)
            row = QuotaRow(
                TYPE,
                None if guaranteed is None else MilliGpu.gpus(guaranteed),
                None if most is None else MilliGpu.gpus(max(most, least)),
            )
            if row.guaranteed is None and row.max is None:
                continue
            weight = random.choice((None, None, 3))
            hours = QuotaHours("night", own[0].start, _repeat(own), (row,), weight)
            tried = [*known]
            tried[place] = msgspec.structs.replace(queue, hours=(hours,))
            known = tried if _is_lawful(tried, gpus) else known
    return tuple(known)


def _is_lawful(queues: list[Queue], gpus: int) -> bool:
    """Whether guarantees fit at every moment, each in its parent's and all in the cluster, and no max is below one."""
    every: list[Mapping[QueueName, object]] = [{}, *(open_ for _, open_ in moments(queues))]
    for open_ in every:
        rows = {q.name: next(iter(quota_in(q, open_.get(q.name, ()))), None) for q in queues}  # type: ignore[arg-type]
        below = dict.fromkeys([None, *(q.name for q in queues)], 0)
        for queue in queues:
            row = rows[queue.name]
            has = int(row.guaranteed or 0) if row else 0
            below[queue.parent] += has
            if row and row.max is not None and row.max < has:
                return False
            above = rows.get(queue.parent) if queue.parent else None
            if row and row.max is not None and above and above.max is not None and above.max < row.max:
                return False
        if below[None] > gpus * 1000:
            return False
        for queue in queues:
            row = rows[queue.name]
            if below[queue.name] > (int(row.guaranteed or 0) if row else 0):
                return False
    return True


def _documents(snapshot: Snapshot, queues: tuple[Queue, ...], random: Random) -> Iterator[DeclaredReservation]:
    """None, one or two, which keep other nodes, or GPUs by their count."""
    names = [node.name for node in snapshot.nodes]
    random.shuffle(names)
    for number in range(random.choice((0, 1, 1, 2))):
        times = _times(random)
        while times and times[-1].until <= snapshot.time:
            times = _times(random)
        queue = random.choice((None, *(q.name for q in queues)))
        users = ("ada",) if queue is None else random.choice((None, None, ("ada",)))
        evict = random.choice(EVICTS)
        repeats = len(times) > 1
        made = DeclaredReservation(
            f"d{number}",
            times[0].start,
            None if repeats else times[0].until,
            queue,
            users,
            origin=f"d{number}.yaml",
            evict=evict,
            repeat=_repeat(times) if repeats else None,
        )
        if random.random() < 0.4 and names:
            yield msgspec.structs.replace(made, nodes=(names.pop(),))
        else:
            size = random.choice((1, 1, 2, 3))
            yield msgspec.structs.replace(made, gpu_type=TYPE, count=random.randint(1, 2), gpus_per_node=size)


class Held(NamedTuple):
    """One round through the windows of a world."""

    snapshot: Snapshot
    policy: Policy
    plan: Plan


def rounds_through(world: World, decide: Decide, upset: int | None = None) -> Iterator[Held]:
    """Rounds one after the other: at once where the last one changed something, else when something begins or ends.

    `upset`: by which number a node is lost or comes back, and documents come only after a while; None: neither.
    """
    snapshot, policy = world
    random = Random(f"upset/{upset}")
    comes = 0 if upset is None else random.choice((0, 1, 4))
    for number in range(ROUNDS_MAX):
        known = policy.reservations if number >= comes else policy.reservations[:1]
        held = msgspec.structs.replace(policy, reservations=known)
        plan = decide(snapshot, held)
        yield Held(snapshot, held, plan)
        after = victims_gone(applied(snapshot, plan))
        asked = any(isinstance(step, Evict) for step in plan.steps)
        busy = asked or any(isinstance(step, Bind | Grow | Shrink) for step in plan.steps)
        at = next_time(after, policy) if not busy else int(snapshot.time) + (MINUTE_MS if asked else 1)
        if at is None:
            return
        snapshot = _ended(after, at)
        if upset is not None and random.random() < 0.15:
            snapshot = _with_a_node_upset(snapshot, random)


def _with_a_node_upset(snapshot: Snapshot, random: Random) -> Snapshot:
    """A node takes no more work, or does again; what ran on one that is lost waits again."""
    place = random.randrange(len(snapshot.nodes))
    nodes = list(snapshot.nodes)
    cordons = random.random() < 0.5
    nodes[place] = upset = (
        msgspec.structs.replace(nodes[place], cordoned=not nodes[place].cordoned)
        if cordons
        else msgspec.structs.replace(nodes[place], ready=not nodes[place].ready)
    )
    lost = set[JobName]()
    if not upset.ready:
        lost = {job.name for job in snapshot.jobs if any(task.node == upset.name for task in job.placement)}
    jobs = [
        msgspec.structs.replace(job, phase="pending", placement=(), started_at=None) if job.name in lost else job
        for job in snapshot.jobs
    ]
    intents = tuple(intent for intent in snapshot.in_flight.intents if intent.job not in lost)
    in_flight = msgspec.structs.replace(snapshot.in_flight, intents=intents)
    return snapshot_of(snapshot.time, nodes, jobs, in_flight, snapshot.node_sets)


def next_time(snapshot: Snapshot, policy: Policy) -> int | None:
    """When a window begins or ends, one is asked to leave for it, a job reaches its limit or is protected no more."""
    now, edges = int(snapshot.time), set[int]()
    for queue in policy.queues:
        for hours in queue.hours:
            edges |= {int(at) for window in hours.repeat.windows for at in (window.start, window.until)}
    for document in policy.reservations:
        for one in document.occurrences():
            edges |= {int(one.start), int(one.until)}
            edges |= {int(one.start) - int(policy.grace(job)) for job in snapshot.jobs if job.placement}
    for held in snapshot.in_flight.reservations:
        if declared_name(held.holder) is None:
            edges.add(int(held.start))
            edges |= {int(held.start) - int(policy.grace(job)) for job in snapshot.jobs if job.placement}
    for job in snapshot.jobs:
        if job.placement and job.started_at is not None:
            known = policy.priority_class(job)
            edges.add(int(job.started_at) + int(known.protection.min_runtime if known else 0))
            edges |= {int(job.started_at) + int(job.time_limit)} if job.time_limit is not None else set()
    edges |= {int(clock.deadline) for clock in snapshot.in_flight.convergence}
    return min((at for at in edges if at > now), default=None)


def _ended(snapshot: Snapshot, at: int) -> Snapshot:
    """The world at an instant, without jobs that have reached their limits."""
    goes_on = (
        job
        for job in snapshot.jobs
        if not (job.placement and job.time_limit is not None and job.started_at is not None)
        or job.started_at + job.time_limit > at
    )
    return snapshot_of(Instant(at), snapshot.nodes, list(goes_on), snapshot.in_flight, snapshot.node_sets)


def by_other_names(world: World, seed: int) -> tuple[World, dict[str, str]]:
    """The same world with the names of queues, jobs and nodes exchanged, also in documents."""
    (snapshot, policy), names = renamed(world, seed)

    def other(document: DeclaredReservation) -> DeclaredReservation:
        queue = None if document.queue is None else QueueName(names[document.queue])
        nodes = None if document.nodes is None else tuple(sorted(type(n)(names[n]) for n in document.nodes))
        return msgspec.structs.replace(document, queue=queue, nodes=nodes)

    documents = tuple(map(other, world.policy.reservations))
    return World(snapshot, msgspec.structs.replace(policy, reservations=documents)), names
