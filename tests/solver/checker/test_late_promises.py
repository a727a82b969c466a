"""A job that was promised devices for too long, and starts on them when that is taken back."""

from __future__ import annotations

import pytest

from solver.checker.check import violations
from solver.model.inflight import InFlight, Intent
from solver.model.quantities import Instant
from solver.model.snapshot import snapshot_of
from solver.model.workload import JobName, TaskPlacement
from solver.plan.plan import Evict, Withdraw
from tests.solver.laws.judge import greedy, production
from tests.solver.laws.loop import Decide
from tests.solver.laws.worlds import world_of

WORLD = world_of("""
nodes n1=2 n2=2 n3=5
class high 1
class low -1
class mid 0
queue b 0
queue x 0
queue x1 in x -
queue x2 in x -
run j4 b 3x1@n1,n2,n3 for 145m high
run j5 x1 3x1@n3,n3,n2 for 195m mid
run j6 b 1@n3 for 272m high
run j3 x1 1@n3 for 65m low
wait j1 x2 1 for 173m mid
wait j2 b 1 for 199m mid
""")
"""Each of b and x has a fair share of half the GPUs. One GPU is free: x has four of nine, and is to have it."""


@pytest.mark.parametrize("decide", [production, greedy])
def test_what_starts_though_its_promise_is_taken_back_counts_for_its_queue(decide: Decide) -> None:
    snapshot, policy = WORLD
    held = {device for job in snapshot.jobs for task in job.placement for device in task.devices}
    node, free = next((node, gpu.id) for node in snapshot.nodes for gpu in node.gpus if gpu.id not in held)
    there = (TaskPlacement("worker", 0, node.name, (free,)),)
    late = Intent("nominate", JobName("j1"), 1, Instant(-3_600_000), Instant(-3_000_000), there)
    seen = snapshot_of(snapshot.time, snapshot.nodes, snapshot.jobs, InFlight((late,)))
    plan = decide(seen, policy)
    assert violations(seen, policy, plan) == ()
    assert [str(step.job) for step in plan.steps if isinstance(step, Withdraw)] == ["j1"]
    assert [(step.job, step.means) for step in plan.steps if isinstance(step, Evict)] == [("j3", "reclaim")]
