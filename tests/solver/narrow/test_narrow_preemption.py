"""Others leave for an urgent job that comes as a complete round would have them: by every rule, and only as far as that is sure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from hypothesis import given

from solver.checker.ledger_check import LedgerCheck
from solver.model.inflight import Intent
from solver.model.quantities import Instant
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.snapshot_patch import patch_between
from solver.model.workload import Job
from solver.narrow.acted_on import acted_on
from solver.narrow.narrow_world import NarrowWorld
from solver.plan.plan import Bind, Evict, Nominate, Plan
from solver.policy.policy import Policy
from solver.round.solve import solve
from tests.drawn import worlds
from tests.solver.checker.test_eviction_check import judged
from tests.solver.crowded import NOW, crowded, crowded_policies, urgent

SOON = Instant(NOW + 1_000)


def with_jobs(world: Snapshot, came: Iterable[Job], now: Instant) -> Snapshot:
    """The world in which these have come."""
    return snapshot_of(now, world.nodes, [*world.jobs, *came], world.in_flight, world.node_sets)


def beginning(world: Snapshot, plan: Plan) -> Snapshot:
    """The world in which what a plan starts has not begun to run yet."""
    begun = {step.job for step in plan.steps if isinstance(step, Bind)}
    jobs = (msgspec.structs.replace(one, phase="starting") if one.name in begun else one for one in world.jobs)
    return snapshot_of(world.time, world.nodes, jobs, world.in_flight, world.node_sets)


@worlds(500)
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
