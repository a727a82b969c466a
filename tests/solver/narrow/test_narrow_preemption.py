"""Others leave for an urgent job that comes as a complete round would have them: by every rule, and only as far as that is sure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from hypothesis import given

from solver.checker.ledger_check import LedgerCheck
from solver.model.cluster import DeviceId, NodeName
from solver.model.inflight import Intent
from solver.model.quantities import Duration, Instant
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.snapshot_patch import patch_between
from solver.model.workload import Job, JobName, QueueName, TaskPlacement
from solver.narrow.acted_on import acted_on
from solver.narrow.narrow_world import NarrowWorld
from solver.plan.plan import Bind, Evict, Nominate, Plan
from solver.policy.harm import Protection
from solver.policy.ordering import Ordering
from solver.policy.policy import Policy, PriorityClass, Queue, SchedulingPolicy, policy_of
from solver.round.solve import solve
from tests.drawn import worlds
from tests.solver.checker.test_eviction_check import judged
from tests.solver.crowded import NOW, crowded, crowded_policies, urgent, whole
from tests.solver.worlds import node, quota_of

SOON = Instant(NOW + 1_000)


def with_jobs(world: Snapshot, came: Iterable[Job], now: Instant) -> Snapshot:
    """The world in which these have come."""
    return snapshot_of(now, world.nodes, [*world.jobs, *came], world.in_flight, world.node_sets)


def beginning(world: Snapshot, plan: Plan) -> Snapshot:
    """The world in which what a plan starts has not begun to run yet."""
    begun = {step.job for step in plan.steps if isinstance(step, Bind)}
    jobs = (msgspec.structs.replace(one, phase="starting") if one.name in begun else one for one in world.jobs)
    return snapshot_of(world.time, world.nodes, jobs, world.in_flight, world.node_sets)


@worlds(250)
@given(crowded(), crowded_policies(), urgent(SOON))
def test_who_leaves_for_jobs_that_come_leaves_by_every_rule(
    snapshot: Snapshot, policy: Policy, came: Sequence[Job]
) -> None:
    """Each decision is lawful to the checker of whole plans, and to that of single promises."""
    plan = solve(snapshot, policy, None)
    kept, check = NarrowWorld.after(snapshot, policy, plan), LedgerCheck(snapshot, policy)
    after = beginning(acted_on(snapshot, plan), plan)
    check.change(patch_between(snapshot, after))
    world = with_jobs(after, came, SOON)
    for one in came:
        steps = tuple(kept.decide([one], SOON).steps(policy))
        assert judged(world, policy, steps) == ()
        evictions = [step for step in steps if isinstance(step, Evict)]
        for step in steps:
            if isinstance(step, Evict):
                continue
            if isinstance(step, Nominate):
                assert check.refused_promise(step, evictions, one, SOON) == ()
            else:
                assert check.refused(step, one, SOON) == ()
            check.hold(one, step.attempt, step.tasks)
        for eviction in evictions:
            until = SOON.after(eviction.grace)
            check.ask(Intent("stop", eviction.job, eviction.attempt, SOON, until, purpose="evict"))
        done = msgspec.structs.replace(plan, steps=steps)
        world = beginning(acted_on(world, done), done)


TRAINING = PriorityClass("training", 100, protection=Protection(min_runtime=Duration(0)))
URGENT = PriorityClass("inference", 1000, slo_class="latency-critical")


def lent_world(*more: Job, turns: Ordering | None = None, limit: Duration | None = None) -> NarrowWorld:
    """Four jobs of two GPUs hold a node: the first two lie inside the guarantee of their queue, the others borrow from `own`."""
    queues = (
        Queue(QueueName("own"), None, (quota_of("H100", 4),), ordering=turns),
        Queue(QueueName("theirs"), None, (quota_of("H100", 4),)),
    )
    policy = policy_of(queues, (TRAINING, URGENT), SchedulingPolicy(reclaim="guaranteed"))
    running = [
        msgspec.structs.replace(
            whole(f"lent-{number}", "theirs", 2, "training", 0),
            phase="running",
            attempt=1,
            started_at=Instant(number),
            time_limit=limit,
            placement=(
                TaskPlacement(
                    "worker", 0, NodeName("n1"), (DeviceId(f"n1/{2 * number}"), DeviceId(f"n1/{2 * number + 1}"))
                ),
            ),
        )
        for number in range(4)
    ]
    world = snapshot_of(NOW, [node("n1", 8)], [*running, *more])
    return NarrowWorld.after(world, policy, solve(world, policy, None))


def leave_for(world: NarrowWorld, *came: Job) -> list[str]:
    """Who leaves for jobs that come."""
    return [step.job for step in world.decide(came, SOON).steps(world.policy) if isinstance(step, Evict)]


def comes(name: str, gpus: int = 2, known: str = "inference") -> Job:
    return whole(name, "own", gpus, known, int(SOON))


def test_borrowed_jobs_leave_and_no_other() -> None:
    world = lent_world()
    assert sorted([*leave_for(world, comes("one")), *leave_for(world, comes("two"))]) == ["lent-2", "lent-3"]
    assert leave_for(world, comes("three")) == []


def test_nobody_leaves_for_jobs_that_are_not_urgent() -> None:
    world = lent_world()
    assert leave_for(world, comes("one", known="training")) == []
    assert leave_for(world, comes("two")) != []


def test_what_ends_beyond_a_guarantee_gives_no_other_a_right_to_stay() -> None:
    world = lent_world()
    world.change([JobName("lent-3")])
    assert leave_for(world, comes("one")) == ["lent-2"]


def test_what_ends_inside_a_guarantee_may() -> None:
    world = lent_world()
    world.change([JobName("lent-0")])
    assert leave_for(world, comes("one")) == []


def test_no_job_passes_an_urgent_one_that_a_complete_round_may_serve() -> None:
    """For the first, two GPUs are missing of those that borrowed jobs hold: who else could leave for it a complete round says."""
    world = lent_world()
    world.change([JobName("lent-3")])
    assert leave_for(world, comes("large", 4)) == []
    assert leave_for(world, comes("small", 2)) == []


def test_one_beyond_its_guarantee_is_in_nobodys_way() -> None:
    world = lent_world()
    assert leave_for(world, comes("large", 8)) == []
    assert len(leave_for(world, comes("small", 2))) == 1


def test_queues_whose_order_decides_are_left_to_complete_rounds() -> None:
    assert leave_for(lent_world(turns=Ordering("gittins")), comes("one")) == []
    strict = lent_world(turns=Ordering("fifo", strict=True))
    assert leave_for(strict, comes("large", 8)) == []
    assert leave_for(strict, comes("one")) == []


def test_nobody_leaves_what_is_reserved() -> None:
    """A gang that waits has the node kept for it once all who run there are over."""
    gang, limit = whole("gang", "theirs", 8, "training", 0), Duration(NOW + 60_000)
    assert len(leave_for(lent_world(limit=limit), comes("one"))) == 1
    assert leave_for(lent_world(gang, limit=limit), comes("one")) == []
