"""What starts on what has become free is what a complete round would start there, and harms no job that waits."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from solver.checker.check import narrow_violations
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName
from solver.narrow.acted_on import acted_on
from solver.narrow.narrow_world import FreedDecision, NarrowDecision, NarrowWorld
from solver.plan.plan import Bind, Certificate, Evict, Nominate, Plan, Shrink
from solver.policy.policy import Policy
from solver.round.solve import solve
from tests.drawn import worlds
from tests.solver.narrow.test_narrow_world import LATER
from tests.solver.worlds import policies, snapshots

Ends = tuple[Snapshot, Policy, Plan, list[JobName]]


@st.composite
def ends(draw: st.DrawFn) -> Ends:
    """A round that was acted on, and some jobs that hold something and end after it."""
    snapshot = draw(snapshots(jobs_max=9, held_one_in=2, elastic=True, close=True))
    policy = draw(policies() | policies(keeping=True))
    plan = solve(snapshot, policy, None)
    running = [known.name for known in acted_on(snapshot, plan).jobs if known.placement]
    gone = draw(st.lists(st.sampled_from(running), min_size=1, unique=True)) if running else []
    return snapshot, policy, plan, gone


def without(world: Snapshot, gone: Collection[JobName], more: Iterable[Job] = ()) -> Snapshot:
    """The world once some jobs have ended for good, and others have come."""
    jobs = [known for known in world.jobs if known.name not in gone]
    intents = tuple(intent for intent in world.in_flight.intents if intent.job not in gone)
    in_flight = msgspec.structs.replace(world.in_flight, intents=intents)
    return snapshot_of(world.time, world.nodes, [*jobs, *more], in_flight, world.node_sets)


def freed(narrow: NarrowWorld) -> FreedDecision:
    """What is decided of what has become free."""
    found = narrow.found(LATER)
    narrow.give(found)
    return found


def plan_of(world: Snapshot, policy: Policy, found: NarrowDecision) -> Plan:
    """What was decided, as a plan."""
    return Plan(
        world.digest, policy.digest, tuple(found.steps(policy)), (), Certificate("greedy", (), 0.0, "greedy", 0)
    )


def served(plan: Plan) -> set[JobName]:
    """The jobs that it gives anything to."""
    return {step.job for step in plan.steps if isinstance(step, Bind | Nominate)}


@worlds(300)
@given(ends())
def test_what_starts_keeps_every_rule(known: Ends) -> None:
    snapshot, policy, plan, gone = known
    narrow = NarrowWorld.after(snapshot, policy, plan)
    narrow.end(gone)
    world = without(acted_on(snapshot, plan), gone)
    assert list(narrow_violations(world, policy, plan_of(world, policy, freed(narrow)))) == []


@worlds(300)
@given(ends())
def test_a_complete_round_would_start_it_too(known: Ends) -> None:
    snapshot, policy, plan, gone = known
    narrow = NarrowWorld.after(snapshot, policy, plan)
    narrow.end(gone)
    found = freed(narrow)
    whole = solve(without(acted_on(snapshot, plan), gone), policy, None)
    started = {step.job for step in whole.steps if isinstance(step, Bind)}
    assert {job.name for job in found.jobs} <= started


@worlds(300)
@given(ends())
def test_no_job_that_waits_is_worse_off_for_it(known: Ends) -> None:
    """The next complete round starts, or promises devices to, each other job that it would have without."""
    snapshot, policy, plan, gone = known
    narrow = NarrowWorld.after(snapshot, policy, plan)
    narrow.end(gone)
    found = freed(narrow)
    begun = {job.name for job in found.jobs}
    world = without(acted_on(snapshot, plan), gone)
    after = acted_on(world, plan_of(world, policy, found))
    assert served(solve(world, policy, None)) <= served(solve(after, policy, None)) | begun


@worlds(300)
@given(ends())
def test_the_next_round_evicts_none_of_them(known: Ends) -> None:
    snapshot, policy, plan, gone = known
    narrow = NarrowWorld.after(snapshot, policy, plan)
    narrow.end(gone)
    found = freed(narrow)
    begun = {job.name for job in found.jobs}
    world = without(acted_on(snapshot, plan), gone)
    following = solve(acted_on(world, plan_of(world, policy, found)), policy, None)
    assert [step for step in following.steps if isinstance(step, Evict | Shrink) and step.job in begun] == []
