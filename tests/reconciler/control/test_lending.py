"""What idle jobs lend: taken back by the rules for borrowed GPUs and no others, and nothing changes where nothing is lent."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.control.lending import lent_queue, own_queue, with_lent, without_lent
from solver.checker.check import violations
from solver.milp.highs import optimise
from solver.model.cluster import DeviceId, Gpu, GpuType, Node, NodeName
from solver.model.quantities import Cpu, Duration, Instant, Memory, MilliGpu
from solver.model.shape import Shape
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName, JobSpec, QueueName, TaskGroup, TaskPlacement
from solver.plan.plan import Evict, Plan
from solver.policy.policy import Policy, PriorityClass, Queue, Quota, SchedulingPolicy, policy_of
from solver.round.solve import solve
from tests.drawn import worlds
from tests.solver.laws.renaming import renamed
from tests.solver.laws.worlds import World
from tests.solver.worlds import policies, snapshots

NOW = Instant.parse("2026-03-01T12:00:00Z")
H100 = GpuType("H100")
IDLE = JobName("idle")


def node(number: int) -> Node:
    gpus = tuple(Gpu(DeviceId(f"n{number}/{index}"), index) for index in range(8))
    return Node(NodeName(f"n{number}"), "pool", Cpu(64_000), Memory(2**38), H100, gpus)


def job(name: str, queue: str, priority_class: str = "") -> Job:
    spec = JobSpec(QueueName(queue), (TaskGroup("worker", 1, Shape(gpus=8)),), priority_class=priority_class)
    return Job(JobName(name), NOW.after(Duration(-3_600_000)), spec, "ada")


def running(name: str, queue: str, number: int = 1, priority_class: str = "") -> Job:
    devices = tuple(DeviceId(f"n{number}/{index}") for index in range(8))
    task = TaskPlacement("worker", 0, NodeName(f"n{number}"), devices)
    began = NOW.after(Duration(-7_200_000))
    return msgspec.structs.replace(
        job(name, queue, priority_class), phase="running", attempt=1, started_at=began, placement=(task,)
    )


def queue(name: str, guaranteed: int, most: int | None = None) -> Queue:
    limit = None if most is None else MilliGpu.gpus(most)
    return Queue(QueueName(name), quota=(Quota(H100, MilliGpu.gpus(guaranteed), limit),))


def policy(*queues: Queue) -> Policy:
    return policy_of(queues, (PriorityClass("fixed", preemptible=False),), SchedulingPolicy())


def world(*jobs: Job, nodes: int = 1) -> Snapshot:
    return snapshot_of(NOW, tuple(node(number + 1) for number in range(nodes)), jobs)


def planned(snapshot: Snapshot, known: Policy, lent: tuple[str, ...]) -> tuple[Plan, Policy]:
    changed, rules = with_lent(snapshot, known, map(JobName, lent))
    plan = solve(changed, rules, optimise)
    assert violations(changed, rules, plan) == ()
    return plan, rules


def evicted(plan: Plan) -> list[tuple[str, str | None]]:
    return [(step.job, step.beneficiary) for step in plan.steps if isinstance(step, Evict)]


@pytest.mark.parametrize("taker", ["owner", "other", "guest"])
def test_whoever_asks_takes_what_an_idle_job_lends(taker: str) -> None:
    """Its own queue's next job, a queue with a guarantee of its own, and one without."""
    known = policy(queue("owner", 8), queue("other", 8), queue("guest", 0))
    snapshot = world(running(IDLE, "owner"), job("next", taker))
    assert evicted(planned(snapshot, known, ())[0]) == []
    assert evicted(planned(snapshot, known, (IDLE,))[0]) == [(IDLE, "next")]


def test_nothing_that_is_asked_for_takes_nothing() -> None:
    plan, _ = planned(world(running(IDLE, "owner")), policy(queue("owner", 8)), (IDLE,))
    assert evicted(plan) == []


def test_what_is_free_is_taken_first() -> None:
    known = policy(queue("owner", 8), queue("other", 8))
    plan, _ = planned(world(running(IDLE, "owner"), job("next", "other"), nodes=2), known, (IDLE,))
    assert evicted(plan) == []


def test_the_idle_job_goes_before_one_that_works() -> None:
    known = policy(queue("owner", 0), queue("other", 8))
    snapshot = world(running("works", "owner", 1), running(IDLE, "owner", 2), job("next", "other"), nodes=2)
    assert evicted(planned(snapshot, known, (IDLE,))[0]) == [(IDLE, "next")]


def test_a_max_counts_what_is_lent_above_the_guarantee() -> None:
    snapshot = world(running(IDLE, "owner"), nodes=2)
    for guaranteed, most, left in ((0, 12, 4), (8, 12, 8), (8, None, None), (4, 30, 22)):
        _, rules = planned(snapshot, policy(queue("owner", guaranteed, most)), (IDLE,))
        entry = next(known for known in rules.queues if known.name == "owner").quota_for(H100)
        assert entry is not None
        assert entry.max == (None if left is None else MilliGpu.gpus(left))
        assert entry.guaranteed == MilliGpu.gpus(guaranteed)


def test_one_that_may_not_leave_lends_nothing() -> None:
    known = policy(queue("owner", 8), queue("other", 8))
    snapshot = world(running(IDLE, "owner", priority_class="fixed"), job("next", "other"))
    assert with_lent(snapshot, known, (IDLE,)) == (snapshot, known)


def test_where_nothing_is_lent_both_are_the_very_same() -> None:
    known, snapshot = policy(queue("owner", 8)), world(running(IDLE, "owner"), job("next", "owner"))
    same, rules = with_lent(snapshot, known, ())
    assert same is snapshot
    assert rules is known
    assert with_lent(snapshot, known, map(JobName, ("next", "gone")))[0] is snapshot


def test_readers_see_each_job_in_its_own_queue() -> None:
    known = policy(queue("owner", 8))
    snapshot = world(running(IDLE, "owner"))
    changed, _ = with_lent(snapshot, known, (IDLE,))
    assert [each.spec.queue for each in changed.jobs] == ["lent:owner"]
    assert without_lent(changed) == snapshot
    assert own_queue(lent_queue(QueueName("owner"))) == own_queue(QueueName("owner")) == "owner"


@given(snapshots(), policies(), st.randoms())
@worlds(80)
def test_a_round_in_which_jobs_are_lent_is_lawful_and_goes_by_no_name(
    snapshot: Snapshot, known: Policy, chance: Random
) -> None:
    """By the rules of the independent checker, which knows nothing of lending."""
    lent = [each.name for each in snapshot.jobs if each.phase == "running" and chance.random() < 0.6]
    changed, rules = with_lent(snapshot, known, lent)
    plan = solve(changed, rules, optimise)
    assert violations(changed, rules, plan) == ()
    assert without_lent(changed) == snapshot
    other, names = renamed(World(snapshot, known), chance.randrange(1_000))
    theirs, _ = with_lent(*other, [JobName(names[name]) for name in lent])
    moved = {each.name for each in changed.jobs if each.spec.queue != own_queue(each.spec.queue)}
    assert {each.name for each in theirs.jobs if each.spec.queue != own_queue(each.spec.queue)} == {
        names[name] for name in moved
    }
