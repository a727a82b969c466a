"""A boost changes who is first in a queue, and nothing that protects others: not quota, not who may be evicted, not SLO classes."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.checker.check import violations
from solver.milp.highs import optimise
from solver.model.quantities import Instant
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import JobName, QueueName
from solver.plan.plan import Bind, Evict
from solver.policy.ordering import OrderBy, Ordering, Turns
from solver.policy.policy import Policy, PriorityClass, Queue, policy_of
from solver.policy.precedence import ordering_of
from solver.policy.tree import QueueTree
from solver.round.solve import solve
from tests.drawn import worlds
from tests.solver.round.test_against_brute_force import candidates_of
from tests.solver.worlds import job, node, policies, quota_of, snapshots

many = worlds(100)
every_policy = policies() | policies(keeping=True)


def boosting(snapshot: Snapshot, names: Iterable[JobName]) -> Snapshot:
    """The same world, with these jobs boosted."""
    wanted = set(names)
    jobs = (msgspec.structs.replace(known, boosted=known.name in wanted) for known in snapshot.jobs)
    return msgspec.structs.replace(snapshot, jobs=tuple(jobs))


@st.composite
def boosted(draw: st.DrawFn) -> Snapshot:
    """A world in which some jobs are boosted, running ones too."""
    world = draw(snapshots(elastic=True, close=True))
    names = [known.name for known in world.jobs]
    return boosting(world, draw(st.sets(st.sampled_from(names))) if names else ())


@many
@given(boosted(), every_policy)
def test_no_plan_breaks_a_rule(snapshot: Snapshot, policy: Policy) -> None:
    for optimiser in (None, optimise):
        assert violations(snapshot, policy, solve(snapshot, policy, optimiser)) == ()


@many
@given(boosted(), every_policy)
def test_the_boosted_come_first_in_their_queue_and_sub_layer_but_not_where_jobs_take_turns(
    snapshot: Snapshot, policy: Policy
) -> None:
    tree = QueueTree.of(policy)
    passed = set()
    for candidate in candidates_of(snapshot, policy)[0]:
        queue = candidate.job.spec.queue
        if ordering_of(tree, queue).turns is None:
            line = queue, candidate.sub_layer
            assert not (candidate.job.boosted and line in passed)
            passed |= set() if candidate.job.boosted else {line}


@many
@given(snapshots(elastic=True), every_policy)
def test_who_all_are_boosted_are_as_if_nobody_were(snapshot: Snapshot, policy: Policy) -> None:
    everybody = boosting(snapshot, (known.name for known in snapshot.jobs))
    assert solve(everybody, policy, None).steps == solve(snapshot, policy, None).steps


@many
@given(boosted(), every_policy)
def test_sub_layers_follow_each_other_as_without(snapshot: Snapshot, policy: Policy) -> None:
    before, after = (candidates_of(world, policy)[0] for world in (boosting(snapshot, ()), snapshot))
    assert {known.job.name: known.sub_layer for known in before} == {known.job.name: known.sub_layer for known in after}
    assert [known.sub_layer for known in before] == [known.sub_layer for known in after]


@pytest.mark.parametrize("by", ["priority", "fifo", "shortest", "least-served", "gittins"])
def test_in_a_strict_queue_passing_a_boosted_job_is_found(by: OrderBy) -> None:
    early, late = job("early", "q", 1, 8, submitted=-500), job("late", "q", 1, 8)
    world = snapshot_of(Instant(0), [node("n1", 8)], [early, late])
    queue = Queue(QueueName("q"), quota=(quota_of("H100", 8),), ordering=Ordering(by, strict=True))
    policy = policy_of((queue,))
    usual = solve(world, policy, optimise)
    assert [step.job for step in usual.steps if isinstance(step, Bind)] == ["early"]
    lifted = boosting(world, [late.name])
    plan = solve(lifted, policy, optimise)
    assert [step.job for step in plan.steps if isinstance(step, Bind)] == ["late"]
    assert violations(lifted, policy, plan) == ()
    found = violations(lifted, policy, msgspec.structs.replace(usual, snapshot=lifted.digest))
    assert [str(violation) for violation in found] == ["order early: starts before late of strict queue q"]


def test_nobody_is_evicted_for_a_boosted_job_who_would_not_be_for_the_same_one() -> None:
    """What runs is of the same value, and stays however much the other is wanted."""
    runs = msgspec.structs.replace(job("runs", "q", 1, 8), boosted=False)
    first = snapshot_of(Instant(0), [node("n1", 8)], [runs])
    policy = policy_of((Queue(QueueName("q"), quota=(quota_of("H100", 8),)),), (PriorityClass("any"),))
    (start,) = solve(first, policy, None).steps
    assert isinstance(start, Bind)
    running = msgspec.structs.replace(runs, phase="running", attempt=1, placement=start.tasks, started_at=Instant(0))
    world = snapshot_of(Instant(10**9), first.nodes, [running, job("wanted", "q", 1, 8)])
    plan = solve(boosting(world, [JobName("wanted")]), policy, optimise)
    assert [step for step in plan.steps if isinstance(step, Evict)] == []


def test_where_jobs_take_turns_a_boost_changes_nothing() -> None:
    less, more = job("less", "q", 1, 8), msgspec.structs.replace(job("more", "q", 1, 8), served_gpu_ms=10**9)
    world = snapshot_of(Instant(0), [node("n1", 8)], [less, more])
    turns = Ordering("least-served", turns=Turns())
    policy = policy_of((Queue(QueueName("q"), quota=(quota_of("H100", 8),), ordering=turns),))
    plan = solve(boosting(world, [more.name]), policy, optimise)
    assert [step.job for step in plan.steps if isinstance(step, Bind)] == ["less"]
