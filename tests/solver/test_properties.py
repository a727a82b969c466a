"""Promises that hold for every world: safety, rest, determinism, bounds, and that the program never does worse than greedy."""

from __future__ import annotations

import random

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.certify import better
from solver.plan.check import violations
from solver.plan.plan import Bind, Plan
from solver.program.highs import optimise
from solver.rules.policy import Policy
from solver.solve import solve
from solver.world.snapshot import Snapshot, snapshot_of
from tests.solver.worlds import policies, snapshots

many = settings(max_examples=150, deadline=None)


@many
@given(snapshots(elastic=True, close=True), policies())
def test_no_plan_breaks_a_rule(snapshot: Snapshot, policy: Policy) -> None:
    for optimiser in (None, optimise):
        assert violations(snapshot, policy, solve(snapshot, policy, optimiser)) == ()


@many
@given(snapshots(elastic=True, close=True), policies())
def test_solving_again_starts_nothing_more(snapshot: Snapshot, policy: Policy) -> None:
    after = applied(snapshot, solve(snapshot, policy, optimise))
    assert solve(after, policy, optimise).steps == ()


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
@given(snapshots(elastic=True, close=True), policies())
def test_the_program_never_does_worse_than_greedy(snapshot: Snapshot, policy: Policy) -> None:
    greedy_values, values = (
        [layer.value for layer in solve(snapshot, policy, optimiser).certificate.layers]
        for optimiser in (None, optimise)
    )
    assert not better(greedy_values, values)


def applied(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """The world after every bind has come true."""
    binds = {step.job: step for step in plan.steps if isinstance(step, Bind)}
    jobs = [
        msgspec.structs.replace(
            job,
            phase="running",
            attempt=bind.attempt,
            placement=bind.tasks,
            started_at=snapshot.time,
            time_limit=bind.time_limit,
        )
        if (bind := binds.get(job.name))
        else job
        for job in snapshot.jobs
    ]
    return snapshot_of(snapshot.time, snapshot.nodes, jobs)
