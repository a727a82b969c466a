"""Windows of documents that repeat: they are kept one after the other, and what they need is called back in time."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.checker.check import violations
from solver.milp.highs import optimise
from solver.model.cluster import DeviceId, GpuType
from solver.model.inflight import InFlight, Reservation
from solver.model.quantities import Duration, Instant, MilliGpu
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName, QueueName, TaskPlacement
from solver.plan.plan import Bind, Departs, Evict, Plan, Reserve, Runs
from solver.policy.harm import Evictable
from solver.policy.policy import Policy, PriorityClass, Queue, Quota, policy_of
from solver.policy.repeat import Repeat, RepeatedWindow
from solver.policy.reservation import DeclaredReservation
from solver.policy.windows import policy_at
from solver.round.solve import solve
from solver.simulation.replay import Replay
from solver.simulation.trace import TraceJob
from tests.drawn import worlds
from tests.solver.worlds import job, node

MINUTE = 60_000
TEAM = QueueName("team")
FIXED = PriorityClass("fixed", preemptible=False)


def windows(*times: tuple[int, int], evict: Evictable = "none", **what: object) -> DeclaredReservation:
    """Kept for queue `team`, each from a minute until another."""
    known = tuple(RepeatedWindow(Instant(start * MINUTE), Instant(until * MINUTE)) for start, until in times)
    repeat = Repeat("", Duration(known[0].until - known[0].start), "UTC", known)
    made = DeclaredReservation("night", known[0].start, None, TEAM, repeat=repeat, evict=evict)
    return msgspec.structs.replace(made, **(what or {"nodes": ("n1",)}))


def policy_with(*documents: DeclaredReservation, classes: tuple[PriorityClass, ...] = (FIXED,)) -> Policy:
    """Queue `others` is guaranteed all there is, `team` nothing."""
    rows = {name: (Quota(GpuType("H100"), MilliGpu.gpus(gpus)),) for name, gpus in (("others", 6), ("team", 0))}
    queues = tuple(Queue(QueueName(name), quota=row) for name, row in rows.items())
    return policy_of(queues, classes, reservations=documents)


def names(policy: Policy, minute: int) -> list[str]:
    return [known.name for known in policy_at(policy, Instant(minute * MINUTE)).reservations]


def test_a_round_sees_the_window_that_is_not_over_and_those_of_the_next_days() -> None:
    day = 24 * 60
    policy = policy_with(windows(*((start, start + 60) for start in range(0, 12 * day, day))))
    assert len(names(policy, 0)) == 8  # seven days from the end of the first
    assert names(policy, 59)[0] == "night@1970-01-01T00:00:00Z"
    assert names(policy, 60)[0] == "night@1970-01-02T00:00:00Z"
    assert names(policy, 12 * day) == []


def test_the_policy_of_a_round_is_the_same_object_until_a_window_ends() -> None:
    policy, once = policy_with(windows((0, 60), (120, 180))), policy_with()
    assert policy_at(policy, Instant(0)) is policy_at(policy, Instant(59 * MINUTE))
    assert policy_at(policy, Instant(0)) is not policy_at(policy, Instant(60 * MINUTE))
    assert policy_at(once, Instant(0)) is once


def on_n1(queue: str, began: int, limit: int | None = None, of: str = "") -> Job:
    """A job of two GPUs, which run on n1."""
    made = job("one", queue, 1, 2)
    tasks = (TaskPlacement("worker", 0, node("n1", 2).name, (DeviceId("n1/0"), DeviceId("n1/1"))),)
    span = None if limit is None else Duration(limit * MINUTE)
    spec = msgspec.structs.replace(made.spec, priority_class=of, time_limit=span)
    return msgspec.structs.replace(
        *(made,),
        spec=spec,
        phase="running",
        attempt=1,
        placement=tasks,
        started_at=Instant(began * MINUTE),
        time_limit=span,
    )


def kept_on_n1(document: DeclaredReservation) -> Reservation:
    """What the first of its windows keeps, as a round before has chosen it."""
    first = next(document.occurrences())
    task = TaskPlacement("held", 0, node("n1", 2).name, (DeviceId("n1/0"), DeviceId("n1/1")))
    return Reservation(first.holder, (task,), first.start, first.until)


def world_at(ms: int, document: DeclaredReservation, *jobs: Job) -> Snapshot:
    return snapshot_of(Instant(ms), [node("n1", 2)], jobs, InFlight(reservations=(kept_on_n1(document),)))


def leaving(snapshot: Snapshot, policy: Policy) -> list[str]:
    plan = solve(snapshot, policy, optimise)
    assert violations(snapshot, policy, plan) == ()
    return [step.job for step in plan.steps if isinstance(step, Evict)]


GRACE = 30_000


@pytest.mark.parametrize(
    ("evict", "of", "queue", "began", "limit", "ms", "leaves"),
    [
        ("preemptible", "", "others", 0, None, 60 * MINUTE - GRACE, True),
        ("preemptible", "", "others", 0, None, 60 * MINUTE - GRACE - 1, False),
        ("preemptible", "", "others", 0, None, 70 * MINUTE, True),
        ("none", "", "others", 0, None, 70 * MINUTE, False),
        ("preemptible", "fixed", "others", 0, None, 70 * MINUTE, False),
        ("all", "fixed", "others", 0, None, 70 * MINUTE, True),
        ("preemptible", "", "team", 0, None, 70 * MINUTE, False),
        ("preemptible", "", "others", 0, 60, 60 * MINUTE - GRACE, False),  # ends by itself
        ("preemptible", "", "others", 0, 61, 60 * MINUTE - GRACE, True),
        ("preemptible", "", "others", 57, None, 60 * MINUTE - GRACE, False),  # has not run for five minutes
        ("preemptible", "", "others", 57, None, 62 * MINUTE, True),
    ],
)
@pytest.mark.parametrize("what", [{}, {"gpu_type": GpuType("H100"), "count": 1, "gpus_per_node": 2}])
def test_who_leaves_and_when(
    what: dict[str, object], evict: Evictable, of: str, queue: str, began: int, limit: int | None, ms: int, leaves: bool
) -> None:
    document = windows((60, 120), (200, 260), evict=evict, **what)
    world = world_at(ms, document, on_n1(queue, began, limit, of))
    assert leaving(world, policy_with(document)) == (["one"] if leaves else [])


def test_a_job_is_told_before_when_it_will_be_asked() -> None:
    document = windows((60, 120), evict="preemptible")
    (said,) = solve(world_at(0, document, on_n1("others", 0)), policy_with(document), None).verdicts
    assert isinstance(said, Runs)
    assert str(said) == (
        "holds its devices until it is asked to leave at 1970-01-01T00:59:30Z: "
        "Reservation night@1970-01-01T01:00:00Z keeps them for others"
    )
    (ends,) = solve(world_at(0, document, on_n1("others", 0, 60)), policy_with(document), None).verdicts
    assert isinstance(ends, Runs)
    assert ends.leaves_at is None


def test_no_more_leave_in_a_round_than_may() -> None:
    document = windows((60, 120), evict="preemptible", nodes=("n1", "n2"))
    one = on_n1("others", 0)
    two = msgspec.structs.replace(
        *(one,),
        name="two",
        placement=(TaskPlacement("worker", 0, node("n2", 2).name, (DeviceId("n2/0"), DeviceId("n2/1"))),),
    )
    first = next(document.occurrences())
    tasks = tuple(
        msgspec.structs.replace(job.placement[0], group="held", index=at) for at, job in enumerate((one, two))
    )
    kept = InFlight(reservations=(Reservation(first.holder, tasks, first.start, first.until),))
    world = snapshot_of(Instant(70 * MINUTE), [node("n1", 2), node("n2", 2)], [one, two], kept)
    policy = policy_with(document)
    limited = msgspec.structs.replace(policy.scheduling.evictions, per_round=1)
    few = msgspec.structs.replace(policy, scheduling=msgspec.structs.replace(policy.scheduling, evictions=limited))
    assert leaving(world, policy) == ["one", "two"]
    assert leaving(world, few) == ["one"]


def with_steps(plan: Plan, keep: object) -> Plan:
    """Only what passes, of steps and of what is said of them."""
    assert callable(keep)
    return msgspec.structs.replace(plan, steps=tuple(filter(keep, plan.steps)))


def test_the_checker_finds_who_stays_and_who_leaves_too_soon() -> None:
    document = windows((60, 120), evict="preemptible")
    policy, now = policy_with(document), 60 * MINUTE - GRACE
    world = world_at(now, document, on_n1("others", 0))
    plan = solve(world, policy, optimise)
    stays = msgspec.structs.replace(
        plan,
        steps=tuple(step for step in plan.steps if not isinstance(step, Evict)),
        verdicts=(Runs(plan.verdicts[0].job, QueueName("others")),),
    )
    assert {found.rule for found in violations(world, policy, stays)} == {"S10"}
    earlier = world_at(now - 1, document, on_n1("others", 0))
    hasty = msgspec.structs.replace(plan, snapshot=earlier.digest)
    assert isinstance(plan.verdicts[0], Departs)
    assert {found.rule for found in violations(earlier, policy, hasty)} == {"S8", "S4"}
    of_team = world_at(now, document, on_n1("team", 0))
    wrong = msgspec.structs.replace(plan, snapshot=of_team.digest)
    assert "S8" in {found.rule for found in violations(of_team, policy, wrong)}


@pytest.mark.parametrize(
    ("evict", "of", "ms", "starts"),
    [
        ("none", "", 0, False),
        ("preemptible", "", 0, True),
        ("preemptible", "fixed", 0, False),
        ("all", "fixed", 0, False),
        ("preemptible", "", 54 * MINUTE, True),  # five minutes and the grace before it begins
        ("preemptible", "", 55 * MINUTE, False),
        ("preemptible", "", 61 * MINUTE, False),
        ("preemptible", "", 121 * MINUTE, True),  # until the next
    ],
)
def test_a_job_without_a_limit_runs_there_if_it_can_be_asked_to_leave(
    evict: Evictable, of: str, ms: int, starts: bool
) -> None:
    document = windows((60, 120), (200, 260), evict=evict)
    one = job("one", "others", 1, 2)
    waiting = msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, priority_class=of))
    world, policy = snapshot_of(Instant(ms), [node("n1", 2)], [waiting]), policy_with(document)
    plan = solve(world, policy, optimise)
    assert violations(world, policy, plan) == ()
    assert [step.job for step in plan.steps if isinstance(step, Bind)] == (["one"] if starts else [])
    careless = solve(world, msgspec.structs.replace(policy, reservations=()), optimise)
    keeping = [step for step in plan.steps if isinstance(step, Reserve)]
    steps = tuple(step for step in careless.steps if not isinstance(step, Reserve))
    found = violations(world, policy, msgspec.structs.replace(careless, policy=policy.digest, steps=(*steps, *keeping)))
    assert {one.rule for one in found} == (set() if starts else {"S10"})


@st.composite
def traces(draw: st.DrawFn) -> list[TraceJob]:
    """Jobs of both queues that arrive over four hours; half have no limit."""
    made = []
    for number in range(draw(st.integers(4, 10))):
        queue = draw(st.sampled_from(["others", "others", "team"]))
        one = job(f"j{number:02}", queue, draw(st.integers(1, 2)), 2, submitted=draw(st.integers(0, 240)) * MINUTE)
        limit = draw(st.one_of(st.none(), st.integers(5, 60)))
        spec = msgspec.structs.replace(one.spec, time_limit=None if limit is None else Duration(limit * MINUTE))
        minutes = draw(st.integers(1, limit or 150))
        made.append(TraceJob(msgspec.structs.replace(one, spec=spec), Duration(minutes * MINUTE)))
    return made


@dataclass
class Seen:
    """Who was where, from when until when; and what documents keep."""

    kept: dict[str, tuple[TaskPlacement, ...]] = field(default_factory=dict)
    gone: list[tuple[Bind, int, int]] = field(default_factory=list)
    there: dict[JobName, tuple[Bind, int]] = field(default_factory=dict)

    def note(self, plan: Plan, now: int, replay: Replay) -> None:
        for name in [name for name in self.there if (replay.runs[name].ended_at or now + 1) <= now]:
            self._left(name, int(replay.runs[name].ended_at or 0))
        for step in plan.steps:
            if isinstance(step, Reserve):
                self.kept[step.job] = step.tasks
            elif isinstance(step, Evict):
                self._left(step.job, now + int(step.grace))
            elif isinstance(step, Bind):
                self.there[step.job] = step, now

    def _left(self, name: JobName, at: int) -> None:
        self.gone.append((*self.there.pop(name), at))

    def times(self, replay: Replay) -> list[tuple[Bind, int, int]]:
        ends = [(name, replay.runs[name].ended_at) for name in self.there]
        return [*self.gone, *((*self.there[name], int(end)) for name, end in ends if end is not None)]


@pytest.mark.thorough
@worlds(120)
@given(
    traces(),
    st.sampled_from([{"nodes": ("n1",)}, {"gpu_type": GpuType("H100"), "count": 2, "gpus_per_node": 2}]),
    st.integers(0, 60),
    st.integers(20, 60),
    st.integers(0, 90),
    st.booleans(),
)
def test_in_no_window_is_anybody_else_there(
    trace: list[TraceJob], what: dict[str, object], start: int, minutes: int, between: int, by_program: bool
) -> None:
    times = [(first, first + minutes) for first in (start + number * (minutes + between) for number in range(3))]
    document = windows(*times, evict="preemptible", **what)
    policy, nodes = policy_with(document), tuple(node(f"n{number}", 2) for number in (1, 2, 3))
    replay, seen = Replay(nodes, policy, optimise if by_program else None, Duration(1)), Seen()
    for decided in replay.rounds(trace, Instant(10_000 * MINUTE)):
        assert violations(decided.snapshot, policy, decided.plan) == ()
        seen.note(decided.plan, int(decided.snapshot.time), replay)
    strangers = {one.job.name for one in trace if one.job.spec.queue != TEAM}
    for occurrence in document.occurrences():
        mine = {device for task in seen.kept.get(occurrence.holder, ()) for device in task.devices}
        for bind, first, last in seen.times(replay):
            devices = {device for task in bind.tasks for device in task.devices}
            if bind.job in strangers and devices & mine:
                assert last <= occurrence.start or first >= occurrence.until
