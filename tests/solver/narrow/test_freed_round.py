"""What starts on what has become free is what a complete round would start there, and harms no job that waits."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

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
from tests.solver.narrow.test_narrow_world import LATER, arrivals
from tests.solver.worlds import policies, snapshots


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
    return Ending(policy, without(world, gone, back), narrow)


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
    assert {job.name for job in found.jobs} <= started(solve(known.world, known.policy, None))


@worlds(300)
@given(ending())
def test_no_job_that_waits_is_worse_off_for_it(known: Ending) -> None:
    """The next complete round starts, or promises devices to, each other job that it would have without."""
    found = known.found
    following = solve(known.after(found), known.policy, None)
    begun = {job.name for job in found.jobs}
    assert served(solve(known.world, known.policy, None)) <= served(following) | begun


@worlds(300)
@given(ending())
def test_the_next_round_evicts_none_of_them(known: Ending) -> None:
    """What was promised before is bound as a complete round would have bound it, whatever comes of it in queues that take turns."""
    found = known.found
    begun = {start.candidate.job.name for start in found.starts}
    leaving = (step for step in solve(known.after(found), known.policy, None).steps if isinstance(step, Evict | Shrink))
    assert [step for step in leaving if step.job in begun] == []
