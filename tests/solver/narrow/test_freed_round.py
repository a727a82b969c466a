"""What starts on what has become free is what a complete round would start there, and harms no job that waits."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from unittest.mock import patch

import msgspec
from hypothesis import given
from hypothesis import strategies as st

import solver.round.solve as round_solve
from solver.checker.check import narrow_violations
from solver.model.cluster import GpuType, Node
from solver.model.quantities import Instant
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName, QueueName
from solver.narrow.acted_on import acted_on
from solver.narrow.narrow_world import FreedDecision, NarrowDecision, NarrowWorld
from solver.plan.plan import Bind, Certificate, Evict, Nominate, Plan, Shrink
from solver.policy.ordering import Ordering
from solver.policy.policy import Policy, Queue, policy_of
from solver.round.solve import solve
from tests.drawn import worlds
from tests.solver.narrow.test_narrow_world import LATER, arrivals
from tests.solver.round.test_mig import partitioned
from tests.solver.worlds import job, node, policies, quota_of, sharing_policies, snapshots, with_fractions


@dataclass(frozen=True)
class Ending:
    """A round that was acted on, and what came about after it: jobs came, some of which were served; others ended.

    `world`: as it is then. `narrow`: what a narrow round knows of that.
    """

    policy: Policy
    world: Snapshot
    narrow: NarrowWorld

    @property
    def found(self) -> FreedDecision:
        """What is decided of what has become free."""
        found = self.narrow.found(LATER)
        self.narrow.give(found)
        return found

    def plan(self, found: NarrowDecision) -> Plan:
        """What was decided, as a plan for the world."""
        return plan_of(self.world, self.policy, found)

    def after(self, found: NarrowDecision) -> Snapshot:
        """The world in which that was done."""
        return acted_on(self.world, self.plan(found))


Worlds = st.SearchStrategy[tuple[Snapshot, Policy]]

PLAIN: Worlds = st.tuples(
    snapshots(jobs_max=9, held_one_in=2, elastic=True, close=True), policies() | policies(keeping=True)
)


@st.composite
def ending(draw: st.DrawFn, worlds_of: Worlds = PLAIN) -> Ending:
    """Some jobs end for good, and those that were asked to leave for others wait again."""
    snapshot, policy = draw(worlds_of)
    plan = solve(snapshot, policy, None)
    narrow = NarrowWorld.after(snapshot, policy, plan)
    world = acted_on(snapshot, plan)
    if draw(st.booleans()):
        came = draw(arrivals())
        world = without(world, (), came)
        world = acted_on(world, plan_of(world, policy, narrow.decide(came, LATER)))
    holding = [known.name for known in world.jobs if known.placement]
    gone = draw(st.lists(st.sampled_from(holding), min_size=1, unique=True)) if holding else []
    sent_back = {intent.job for intent in world.in_flight.evictions}
    narrow.end(gone, [name for name in gone if name in sent_back])
    jobs = {known.name: known for known in world.jobs}
    back = [
        msgspec.structs.replace(
            jobs[name], phase="pending", placement=(), started_at=None, evicted_at=(*jobs[name].evicted_at, world.time)
        )
        for name in gone
        if name in sent_back
    ]
    return Ending(policy, msgspec.structs.replace(without(world, gone, back), time=LATER), narrow)


def without(world: Snapshot, gone: Collection[JobName], more: Iterable[Job] = ()) -> Snapshot:
    """The world once some jobs hold nothing any more, and others wait."""
    more = tuple(more)
    jobs = [known for known in world.jobs if known.name not in gone]
    promised = {known.name for known in more}
    intents = tuple(
        intent
        for intent in world.in_flight.intents
        if intent.job not in gone or (intent.kind == "nominate" and intent.job in promised)
    )
    in_flight = msgspec.structs.replace(world.in_flight, intents=intents)
    return snapshot_of(world.time, world.nodes, [*jobs, *more], in_flight, world.node_sets)


def plan_of(world: Snapshot, policy: Policy, found: NarrowDecision) -> Plan:
    """What was decided, as a plan."""
    return Plan(
        world.digest, policy.digest, tuple(found.steps(policy)), (), Certificate("greedy", (), 0.0, "greedy", 0)
    )


def complete(world: Snapshot, policy: Policy) -> Plan:
    """A round that decides for now alone, as those of large clusters do."""
    with patch.object(round_solve, "LOOKED_AHEAD_NODES_MAX", 0):
        return solve(world, policy, None)


def started(plan: Plan) -> set[JobName]:
    """The jobs that it binds."""
    return {step.job for step in plan.steps if isinstance(step, Bind)}


def served(plan: Plan) -> set[JobName]:
    """The jobs that it gives anything to."""
    return {step.job for step in plan.steps if isinstance(step, Bind | Nominate)}


@worlds(300)
@given(ending())
def test_what_starts_keeps_every_rule(known: Ending) -> None:
    found = known.found
    assert narrow_violations(known.world, known.policy, known.plan(found)) == ()


@worlds(300)
@given(ending())
def test_a_complete_round_would_start_it_too(known: Ending) -> None:
    found = known.found
    assert {job.name for job in found.jobs} <= started(complete(known.world, known.policy))


@worlds(300)
@given(ending())
def test_no_job_that_waits_is_worse_off_for_it(known: Ending) -> None:
    """The next complete round starts, or promises devices to, each other job that it would have without."""
    found = known.found
    following = complete(known.after(found), known.policy)
    begun = {job.name for job in found.jobs}
    assert served(complete(known.world, known.policy)) <= served(following) | begun


@worlds(300)
@given(ending())
def test_the_next_round_evicts_none_of_them(known: Ending) -> None:
    """What was promised before is bound as a complete round would have bound it, whatever comes of it in queues that take turns."""
    found = known.found
    begun = {start.candidate.job.name for start in found.starts}
    following = complete(known.after(found), known.policy)
    leaving = (step for step in following.steps if isinstance(step, Evict | Shrink))
    assert [step for step in leaving if step.job in begun] == []


@st.composite
def in_parts(draw: st.DrawFn) -> tuple[Snapshot, Policy]:
    """GPUs are divided."""
    return draw(with_fractions(draw(snapshots(nodes_max=4)))), draw(policies().flatmap(sharing_policies))


@worlds(150)
@given(ending(in_parts()) | ending(partitioned()))
def test_beside_parts_of_gpus_all_of_that_holds(known: Ending) -> None:
    found = known.found
    begun, following = {job.name for job in found.jobs}, complete(known.after(found), known.policy)
    whole = complete(known.world, known.policy)
    assert narrow_violations(known.world, known.policy, known.plan(found)) == ()
    assert begun <= started(whole)
    assert served(whole) <= served(following) | begun


@worlds(100)
@given(PLAIN, st.data())
def test_jobs_by_other_names_fare_the_same(known: tuple[Snapshot, Policy], data: st.DataObject) -> None:
    """As long as those names sort alike: they decide where nothing else does."""
    snapshot, policy = known
    plan = solve(snapshot, policy, None)
    holding = [job.name for job in acted_on(snapshot, plan).jobs if job.placement]
    gone = data.draw(st.lists(st.sampled_from(holding), unique=True)) if holding else []
    other = {job.name: JobName(f"a{place:02}z") for place, job in enumerate(snapshot.jobs)}
    renamed = snapshot_of(
        snapshot.time,
        snapshot.nodes,
        [msgspec.structs.replace(job, name=other[job.name]) for job in snapshot.jobs],
    )
    found = decided_after(snapshot, policy, gone)
    assert decided_after(renamed, policy, [other[name] for name in gone]) == [
        (other[name], tasks) for name, tasks in found
    ]


def decided_after(snapshot: Snapshot, policy: Policy, gone: Collection[JobName]) -> list[tuple[JobName, object]]:
    """Which jobs get what once some have ended after a round."""
    narrow = NarrowWorld.after(snapshot, policy, solve(snapshot, policy, None))
    narrow.end(gone)
    return [(step.job, step.tasks) for step in narrow.found(LATER).steps(policy) if isinstance(step, Bind)]


GPUS = GpuType("H100")


def freed_in(policy: Policy, *known: Job, gone: Collection[str], nodes: Sequence[Node] = ()) -> tuple[list[str], bool]:
    """Which jobs start on what others held, after a round of a node of eight GPUs; and whether that was all."""
    snapshot = snapshot_of(Instant(100), nodes or [node("n1", 8, GPUS)], known)
    narrow = NarrowWorld.after(snapshot, policy, solve(snapshot, policy, None))
    narrow.end(list(map(JobName, gone)))
    found = narrow.found(LATER)
    return [job.name for job in found.jobs], found.is_all


def test_it_goes_by_the_order_of_rounds() -> None:
    policy = policy_of((Queue(QueueName("q"), None, (quota_of(GPUS, 8, 8),)),))
    waiting = [job(name, "q", 1, 4, submitted=at) for name, at in (("late", 30), ("first", 10), ("next", 20))]
    assert freed_in(policy, job("a", "q", 1, 4), job("b", "q", 1, 4), *waiting, gone="a") == (["first"], True)
    assert freed_in(policy, job("a", "q", 1, 4), job("b", "q", 1, 4), *waiting, gone="ab") == (["first", "next"], True)


def test_a_smaller_job_does_not_pass_one_for_which_others_might_leave() -> None:
    """The first finds four GPUs of two nodes and not of one, lies inside its guarantee, and the other queue has borrowed some."""
    queues = [Queue(QueueName(name), None, (quota_of(GPUS, most),)) for name, most in (("own", 6), ("other", 2))]
    nodes = [node("n1", 4, GPUS), node("n2", 4, GPUS)]
    known = [
        job("one", "own", 1, 3),
        job("lent-1", "other", 1, 1),
        job("two", "own", 1, 3),
        job("lent-2", "other", 1, 1),
    ]
    waiting = [job("large", "own", 1, 4, submitted=10), job("small", "own", 1, 1, submitted=20)]
    policy = policy_of(tuple(queues))
    assert freed_in(policy, *known, *waiting, gone=["one", "two"], nodes=nodes) == ([], False)
    assert freed_in(policy, *known, waiting[1], gone=["one", "two"], nodes=nodes) == (["small"], True)


def test_a_gang_that_could_grow_inside_its_guarantee_comes_before_what_is_lent() -> None:
    queues = [Queue(QueueName(name), None, (quota_of(GPUS, most),)) for name, most in (("own", 8), ("other", 0))]
    gang = job("gang", "own", 8, 1)
    (group,) = gang.spec.task_groups
    elastic = msgspec.structs.replace(group, min_replicas=4)
    gang = msgspec.structs.replace(gang, spec=msgspec.structs.replace(gang.spec, task_groups=(elastic,)))
    known = [job("fixed", "own", 1, 4), gang, job("lent", "other", 1, 4, submitted=10)]
    assert freed_in(policy_of(tuple(queues)), *known, gone=["fixed"]) == ([], False)
    known[1] = job("gang", "own", 4, 1)
    assert freed_in(policy_of(tuple(queues)), *known, gone=["fixed"]) == (["lent"], True)


def test_a_strict_queue_keeps_its_line() -> None:
    policy = policy_of((Queue(QueueName("q"), None, (quota_of(GPUS, 8, 8),), ordering=Ordering("fifo", strict=True)),))
    known = [
        job("a", "q", 1, 4),
        job("b", "q", 1, 4),
        job("large", "q", 1, 8, submitted=10),
        job("c", "q", 1, 4, submitted=20),
    ]
    assert freed_in(policy, *known, gone="a")[0] == []
    assert freed_in(policy, *known, gone="ab")[0] == ["large"]


def test_what_is_left_to_a_complete_round_is_hidden_from_jobs_that_come() -> None:
    queues = [Queue(QueueName(name), None, (quota_of(GPUS, most),)) for name, most in (("own", 6), ("other", 2))]
    known = [
        job("one", "own", 1, 3),
        job("lent-1", "other", 1, 1),
        job("two", "own", 1, 3),
        job("lent-2", "other", 1, 1),
    ]
    large, policy = job("large", "own", 1, 4, submitted=10), policy_of(tuple(queues))
    snapshot = snapshot_of(Instant(100), [node("n1", 4, GPUS), node("n2", 4, GPUS)], [*known, large])
    narrow = NarrowWorld.after(snapshot, policy, solve(snapshot, policy, None))
    narrow.end([JobName("one"), JobName("two")])
    narrow.give(narrow.found(LATER))
    assert narrow.decide([job("small", "own", 1, 1, submitted=int(LATER))], LATER).starts == ()
    narrow.withdraw([large.name])
    narrow.give(narrow.found(LATER))
    assert len(narrow.decide([job("next", "own", 1, 1, submitted=int(LATER))], LATER).starts) == 1


def test_what_is_promised_is_nobody_elses_once_one_of_those_has_left_that_held_it() -> None:
    queues = [Queue(QueueName(name), None, (quota_of(GPUS, most),)) for name, most in (("own", 8), ("other", 0))]
    lent, policy = [job(f"lent-{number}", "other", 1, 4) for number in range(2)], policy_of(tuple(queues))
    nodes = [node("n1", 8, GPUS)]
    before = snapshot_of(Instant(100), nodes, lent)
    running = acted_on(before, solve(before, policy, None))
    waiting = [job("large", "own", 1, 8, submitted=110), job("small", "other", 1, 4, submitted=120)]
    snapshot = snapshot_of(Instant(4_000_000), nodes, [*running.jobs, *waiting])
    plan = solve(snapshot, policy, None)
    assert {step.job for step in plan.steps if isinstance(step, Nominate)} == {"large"}
    narrow = NarrowWorld.after(snapshot, policy, plan)
    narrow.end([JobName("lent-0")], [JobName("lent-0")])
    assert (list(narrow.found(Instant(4_000_001)).jobs), narrow.room.free_gpus.tolist()) == ([], [0])
    narrow.end([JobName("lent-1")], [JobName("lent-1")])
    assert [one.name for one in narrow.found(Instant(4_000_001)).jobs] == ["large"]


def test_a_job_that_gets_another_place_than_it_was_promised_holds_that_alone() -> None:
    queues = [Queue(QueueName(name), None, (quota_of(GPUS, most),)) for name, most in (("own", 8), ("other", 0))]
    policy, nodes = policy_of(tuple(queues)), [node("n1", 4, GPUS), node("n2", 4, GPUS)]
    before = snapshot_of(Instant(100), nodes, [job(f"lent-{number}", "other", 1, 4) for number in range(2)])
    running = acted_on(before, solve(before, policy, None))
    snapshot = snapshot_of(Instant(4_000_000), nodes, [*running.jobs, job("first", "own", 1, 4, submitted=110)])
    plan = solve(snapshot, policy, None)
    (promised,) = (step for step in plan.steps if isinstance(step, Nominate))
    narrow = NarrowWorld.after(snapshot, policy, plan)
    (left,) = (one for one in running.jobs if one.placement[0].node != promised.tasks[0].node)
    (first,) = (one for one in snapshot.jobs if one.name == "first")
    narrow.end([left.name])
    narrow.take(msgspec.structs.replace(first, phase="starting", attempt=1), left.placement)
    assert narrow.room.free_gpus.tolist() == [0, 0]
    assert narrow.held.jobs[first.name].placement == left.placement
    narrow.end([next(one.name for one in running.jobs if one is not left)])
    second = job("second", "own", 1, 4, submitted=int(LATER))
    narrow.leave_freed()
    assert [one.job for one in narrow.decide([second], LATER).steps(policy)] == ["second"]
