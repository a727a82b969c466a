"""What starts on what a complete round has left keeps every rule, and harms nobody that waits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from solver.checker.check import start_violations
from solver.model.cluster import GpuType
from solver.model.inflight import InFlight, Reservation
from solver.model.quantities import Duration, Instant
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName, QueueName
from solver.narrow.acted_on import acted_on
from solver.narrow.narrow_world import NarrowWorld
from solver.placement.starts import JobStart
from solver.plan.plan import Bind, Certificate, Evict, Nominate, Plan, Reserve, Shrink
from solver.policy.ordering import Ordering
from solver.policy.policy import Policy, Queue, SchedulingPolicy, policy_of
from solver.round.solve import solve
from solver.round.steps import bind_of
from tests.drawn import worlds
from tests.solver.aftermath import victims_gone
from tests.solver.round.test_mig import partitioned
from tests.solver.worlds import job, jobs, node, policies, quota_of, sharing_policies, snapshots, with_fractions

LATER = Instant(2000)


@st.composite
def arrivals(draw: st.DrawFn) -> list[Job]:
    """Jobs that come after a round; they are small, so that some find room."""
    count = draw(st.integers(1, 4))
    return [
        msgspec.structs.replace(draw(jobs(100 + number, (0, 1, 2), elastic=True, close=True)), submitted_at=LATER)
        for number in range(count)
    ]


def with_jobs_that_came(snapshot: Snapshot, plan: Plan, came: Iterable[Job]) -> Snapshot:
    """The world after a round, with jobs that came since."""
    after = acted_on(snapshot, plan)
    everybody = (*after.jobs, *came)
    return snapshot_of(LATER, after.nodes, everybody, after.in_flight, after.node_sets)


def plan_of(world: Snapshot, policy: Policy, starts: Sequence[JobStart]) -> Plan:
    """The starts, as a plan for this world."""
    steps = tuple(bind_of(start.candidate.job, start.placed.tasks, policy) for start in starts)
    return Plan(world.digest, policy.digest, steps, (), Certificate("greedy", (), 0.0, "greedy", 0))


@worlds(150)
@given(snapshots(elastic=True, close=True, inner=True), policies() | policies(keeping=True), arrivals())
def test_what_starts_keeps_every_rule(snapshot: Snapshot, policy: Policy, came: list[Job]) -> None:
    plan = solve(snapshot, policy, None)
    starts = NarrowWorld.after(snapshot, policy, plan).start(came, LATER)
    world = with_jobs_that_came(snapshot, plan, came)
    assert start_violations(world, policy, plan_of(world, policy, starts)) == ()


@worlds(150)
@given(st.data())
def test_what_starts_beside_parts_of_gpus_keeps_every_rule(data: st.DataObject) -> None:
    came = data.draw(arrivals())
    drawn = data.draw(snapshots(nodes_max=4))
    world = data.draw(with_fractions(snapshot_of(drawn.time, drawn.nodes, [*drawn.jobs, *came])))
    policy = data.draw(policies().flatmap(sharing_policies))
    names = {one.name for one in came}
    came = [one for one in world.jobs if one.name in names]
    before = snapshot_of(world.time, world.nodes, [one for one in world.jobs if one.name not in names])
    plan = solve(before, policy, None)
    starts = NarrowWorld.after(before, policy, plan).start(came, LATER)
    after = with_jobs_that_came(before, plan, came)
    assert start_violations(after, policy, plan_of(after, policy, starts)) == ()


@worlds(150)
@given(snapshots(elastic=True, close=True), policies(), arrivals())
def test_taken_one_by_one_the_room_is_that_of_the_world_in_which_they_run(
    snapshot: Snapshot, policy: Policy, came: list[Job]
) -> None:
    plan = solve(snapshot, policy, None)
    kept = NarrowWorld.after(snapshot, policy, plan)
    starts = [start for one in came for start in kept.start([one], LATER)]
    world = with_jobs_that_came(snapshot, plan, came)
    anew = NarrowWorld.after(world, policy, plan_of(world, policy, starts))
    assert kept.room.free_devices == anew.room.free_devices
    assert kept.room.free_cpu.tolist() == anew.room.free_cpu.tolist()
    assert {line: milli for line, milli in kept.shares.used.items() if milli} == {
        line: milli for line, milli in anew.shares.used.items() if milli
    }
    assert {line: milli for line, milli in kept.shares.inside.items() if milli} == {
        line: milli for line, milli in anew.shares.inside.items() if milli
    }


@worlds(150)
@given(snapshots(elastic=True, close=True), policies() | policies(keeping=True), arrivals(), st.booleans())
def test_no_job_that_waits_is_worse_off_for_it(
    snapshot: Snapshot, policy: Policy, came: list[Job], victims_leave: bool
) -> None:
    """The next complete round starts, or promises devices to, each job that it would have without those that came."""
    plan = solve(snapshot, policy, None)
    starts = NarrowWorld.after(snapshot, policy, plan).start(came, LATER)
    begun = {start.candidate.job.name for start in starts}
    before = with_jobs_that_came(snapshot, plan, ())
    after = with_jobs_that_came(snapshot, plan, [one for one in came if one.name in begun])
    after = acted_on(after, plan_of(after, policy, starts))
    if victims_leave:
        before, after = victims_gone(before), victims_gone(after)
    served, still_served = (
        {step.job for step in solve(world, policy, None).steps if isinstance(step, Bind | Nominate)}
        for world in (before, after)
    )
    assert served <= still_served


@worlds(150)
@given(snapshots(elastic=True, close=True), policies() | policies(keeping=True), arrivals())
def test_the_next_round_evicts_none_of_them(snapshot: Snapshot, policy: Policy, came: list[Job]) -> None:
    """At most it moves one, so that another that came with it fits as well."""
    plan = solve(snapshot, policy, None)
    starts = NarrowWorld.after(snapshot, policy, plan).start(came, LATER)
    world = with_jobs_that_came(snapshot, plan, came)
    following = solve(acted_on(world, plan_of(world, policy, starts)), policy, None)
    begun = {start.candidate.job.name for start in starts}
    leaving = [step for step in following.steps if isinstance(step, Evict | Shrink) and step.job in begun]
    assert all(step.means == "move" for step in leaving)


GPUS = GpuType("H100")


def team(name: str, most: int, strict: bool = False) -> Queue:
    """A queue with a max."""
    quota = (quota_of(GPUS, most, most),)
    return Queue(QueueName(name), None, quota, ordering=Ordering("fifo", strict=strict) if strict else None)


def world_after(policy: Policy, *known: Job, kept: Sequence[Reservation] = ()) -> NarrowWorld:
    """What a round leaves of one node of eight GPUs."""
    snapshot = snapshot_of(Instant(0), [node("n1", 8, GPUS)], known, InFlight(reservations=tuple(kept)))
    return NarrowWorld.after(snapshot, policy, solve(snapshot, policy, None))


def started(world: NarrowWorld, *came: Job) -> list[JobName]:
    return [start.candidate.job.name for start in world.start(came, LATER)]


def test_a_job_gets_what_is_left_and_the_next_what_that_leaves() -> None:
    world = world_after(policy_of((team("q", 8),)), job("before", "q", 1, 5))
    assert started(world, job("a", "q", 1, 2)) == ["a"]
    assert started(world, job("b", "q", 1, 2)) == []
    assert started(world, job("c", "q", 1, 1)) == ["c"]


def test_no_limit_is_exceeded_by_jobs_that_come_one_by_one() -> None:
    world = world_after(policy_of((team("q", 3), team("other", 8))), job("before", "q", 1, 1))
    assert started(world, job("a", "q", 1, 2)) == ["a"]
    assert started(world, job("b", "q", 1, 1)) == []
    assert started(world, job("c", "other", 1, 1)) == ["c"]


def test_a_strict_queue_in_which_a_job_waits_is_left_to_complete_rounds() -> None:
    policy = policy_of((team("q", 8, strict=True),))
    waiting = world_after(policy, job("first", "q", 1, 4), job("waits", "q", 1, 8))
    assert started(waiting, job("a", "q", 1, 1)) == []
    free = world_after(policy, job("first", "q", 1, 4))
    assert started(free, job("too-large", "q", 1, 8)) == []
    assert started(free, job("a", "q", 1, 1)) == []


def test_what_is_reserved_is_nobody_elses() -> None:
    policy = policy_of((team("q", 8),), (), SchedulingPolicy())
    large = msgspec.structs.replace(job("large", "q", 1, 8), submitted_at=Instant(-1))
    short = msgspec.structs.replace(
        job("short", "q", 1, 4), spec=msgspec.structs.replace(job("short", "q", 1, 4).spec, time_limit=Duration(1000))
    )
    before = snapshot_of(Instant(0), [node("n1", 8, GPUS)], [short])
    running = acted_on(before, solve(before, policy, None))
    snapshot = snapshot_of(Instant(10), running.nodes, [*running.jobs, large])
    plan = solve(snapshot, policy, None)
    assert [step.job for step in plan.steps if isinstance(step, Reserve)] == ["large"]
    assert started(NarrowWorld.after(snapshot, policy, plan), job("a", "q", 1, 1)) == []


def test_a_user_has_no_more_than_a_user_may() -> None:
    policy = policy_of((Queue(QueueName("q"), None, (quota_of(GPUS, 8, 8, per_user=2),)),))
    world = world_after(policy)
    ada, bob = (msgspec.structs.replace(job(name, "q", 1, 2), user=name) for name in ("ada", "bob"))
    assert started(world, ada) == ["ada"]
    assert started(world, msgspec.structs.replace(ada, name=JobName("more"))) == []
    assert started(world, bob) == ["bob"]


@worlds(150)
@given(partitioned(), partitioned(nodes_max=1))
def test_no_gpu_is_partitioned_anew_for_jobs_that_come(
    known: tuple[Snapshot, Policy], more: tuple[Snapshot, Policy]
) -> None:
    snapshot, policy = known
    came = [
        msgspec.structs.replace(one, name=JobName(f"later-{one.name}"), submitted_at=LATER)
        for one in more[0].jobs
        if one.phase == "pending"
    ]
    plan = solve(snapshot, policy, None)
    starts = NarrowWorld.after(snapshot, policy, plan).start(came, LATER)
    world = with_jobs_that_came(snapshot, plan, came)
    assert start_violations(world, policy, plan_of(world, policy, starts)) == ()
