"""Promises that hold for every world: safety, rest, determinism, bounds, and that the program never does worse than greedy."""

from __future__ import annotations

import random
from collections import Counter

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from solver.checker.check import violations
from solver.milp.certificate import better
from solver.milp.highs import optimise
from solver.model.cluster import GpuType
from solver.model.quantities import Duration
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import JobName
from solver.plan.plan import Bind, Evict, Grow, Plan
from solver.policy.harm import Protection
from solver.policy.policy import Policy, Queue
from solver.preemption.departures import clocks_of
from solver.round.solve import solve
from tests.drawn import worlds
from tests.solver.aftermath import applied, victims_gone
from tests.solver.worlds import comparing_across, policies, snapshots

many = worlds(150)


def protecting_what_just_started(policy: Policy) -> Policy:
    """The same policy, under which every job runs for a while before it is evicted, no queue drains, and none takes turns."""
    protected = Protection(Duration(60_000))
    classes = (msgspec.structs.replace(known, protection=protected) for known in policy.priority_classes)
    evictions = msgspec.structs.replace(policy.scheduling.evictions, per_round=None)
    scheduling = msgspec.structs.replace(policy.scheduling, reclaim_within=Duration(10**10), evictions=evictions)
    queues = tuple(map(quiet, policy.queues))
    return msgspec.structs.replace(policy, queues=queues, priority_classes=tuple(classes), scheduling=scheduling)


def quiet(queue: Queue) -> Queue:
    """The same queue, without what changes who runs from one round to the next."""
    ordering = queue.ordering and msgspec.structs.replace(queue.ordering, turns=None)
    stop_policy = "None" if queue.stop_policy == "None" else "Hold"
    return msgspec.structs.replace(queue, ordering=ordering, stop_policy=stop_policy)


def overdue(snapshot: Snapshot, policy: Policy) -> Snapshot:
    """The same world, long after the limits that are broken in it were lowered."""
    clocks = [msgspec.structs.replace(clock, deadline=snapshot.time) for clock in clocks_of(snapshot, policy, "c0ffee")]
    in_flight = msgspec.structs.replace(snapshot.in_flight, convergence=tuple(clocks))
    return msgspec.structs.replace(snapshot, in_flight=in_flight)


@many
@given(snapshots(held_one_in=1), policies())
def test_broken_limits_heal_as_far_as_they_may(snapshot: Snapshot, policy: Policy) -> None:
    world = overdue(snapshot, policy)
    plan = solve(world, policy, None)
    assert violations(world, policy, plan) == ()
    after = overdue(victims_gone(applied(world, plan)), policy)
    bounded = policy.scheduling.evictions.per_round is not None
    assert bounded or not any(
        isinstance(step, Evict) and step.means == "converge" for step in solve(after, policy, None).steps
    )


@many
@given(
    snapshots(elastic=True, close=True, inner=True),
    policies() | policies(keeping=True) | policies().map(comparing_across),
)
def test_no_plan_breaks_a_rule(snapshot: Snapshot, policy: Policy) -> None:
    for optimiser in (None, optimise):
        assert violations(snapshot, policy, solve(snapshot, policy, optimiser)) == ()


@many
@given(snapshots(elastic=True, close=True), policies().map(protecting_what_just_started))
def test_solving_again_starts_nothing_more(snapshot: Snapshot, policy: Policy) -> None:
    """But for one case: a gang that starts across its guarantee's line can be evicted again where nothing protects it.

    What starts in a round that evicts has its least size, and grows in the next.
    """
    after = applied(snapshot, solve(snapshot, policy, optimise))
    assert [step for step in solve(after, policy, optimise).steps if not isinstance(step, Grow)] == []


@pytest.mark.thorough
@many
@given(snapshots(elastic=True, close=True), policies(), st.integers(0, 99))
def test_the_order_of_the_input_does_not_matter(snapshot: Snapshot, policy: Policy, seed: int) -> None:
    nodes, jobs = list(snapshot.nodes), list(snapshot.jobs)
    random.Random(seed).shuffle(nodes)
    random.Random(seed).shuffle(jobs)
    shuffled = snapshot_of(snapshot.time, nodes, jobs)
    assert shuffled.digest == snapshot.digest
    assert solve(shuffled, policy, optimise).digest == solve(snapshot, policy, optimise).digest


@many
@given(snapshots(elastic=True, close=True), policies() | policies(keeping=True))
def test_the_program_never_does_worse_than_greedy(snapshot: Snapshot, policy: Policy) -> None:
    plans = [solve(snapshot, policy, optimiser) for optimiser in (None, optimise)]
    # Layer values under different victims do not compare. Nor do those of a start that counts as inside before lower work of its
    # queue, because a search for victims has found that it needs none: the same gangs are as good, however they are counted.
    assume(not any(isinstance(step, Evict) for plan in plans for step in plan.steps))
    by_greedy, by_program = (gangs(snapshot, plan) for plan in plans)
    greedy_values, values = ([layer.value for layer in plan.certificate.layers] for plan in plans)
    assert by_greedy == by_program or not better(greedy_values, values)


def gangs(snapshot: Snapshot, plan: Plan) -> dict[JobName, Counter[GpuType]]:
    """The jobs that start, each with how many of its tasks are on nodes of each type."""
    kinds = {node.name: node.gpu_type for node in snapshot.nodes}
    return {
        step.job: Counter(kinds[task.node] or GpuType("") for task in step.tasks)
        for step in plan.steps
        if isinstance(step, Bind)
    }


@many
@given(snapshots(), policies() | policies(keeping=True))
def test_rounds_come_to_rest(snapshot: Snapshot, policy: Policy) -> None:
    """Nobody evicts in circles: with nothing new, soon nothing happens any more, and no round breaks a rule on the way."""
    for _ in range(20):
        plan = solve(snapshot, policy, None)
        assert violations(snapshot, policy, plan) == ()
        if not plan.steps:
            return
        snapshot = victims_gone(applied(snapshot, plan))
    raise AssertionError("still busy after 20 rounds")
