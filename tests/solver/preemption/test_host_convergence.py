"""A max of CPU or memory below what is held: its clock, and that work without GPUs leaves before work with some."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from reconciler.control.broken_limits import broken_limits
from solver.checker.check import violations
from solver.model.document import decode, encode
from solver.model.inflight import ConvergenceClock
from solver.model.quantities import Cpu, MilliGpu
from solver.model.snapshot import Snapshot
from solver.plan.plan import Evict
from solver.policy.host_share import CpuQuota
from solver.policy.policy import Policy
from solver.preemption import departures as rules
from solver.preemption.departures import clocks_of
from solver.round.solve import solve
from tests.scenarios.loader import read_scenario
from tests.solver.laws.judge import greedy, production
from tests.solver.laws.loop import Decide
from tests.solver.laws.worlds import world_of

SCENARIOS = Path(__file__).parents[2] / "scenarios"
HOUR_MS = 3_600_000


@pytest.fixture
def world() -> tuple[Snapshot, Policy]:
    """Before any clock."""
    known = read_scenario(SCENARIOS / "host-max-lowered-heals-when-its-time-is-over.yaml")
    in_flight = msgspec.structs.replace(known.snapshot.in_flight, convergence=())
    return msgspec.structs.replace(known.snapshot, in_flight=in_flight), known.policy


def with_max(policy: Policy, cores: int) -> Policy:
    """With another limit of the only queue."""
    (queue,) = policy.queues
    rows = (CpuQuota(max=Cpu(cores * 1000)),)
    return msgspec.structs.replace(policy, queues=(msgspec.structs.replace(queue, host_quota=rows),))


def seen_with(snapshot: Snapshot, clocks: tuple[ConvergenceClock, ...]) -> Snapshot:
    return msgspec.structs.replace(snapshot, in_flight=msgspec.structs.replace(snapshot.in_flight, convergence=clocks))


def test_a_clock_begins_with_the_commit_and_ends_with_a_revert(world: tuple[Snapshot, Policy]) -> None:
    snapshot, policy = world
    (clock,) = clocks_of(snapshot, policy, "c0ffee")
    assert (clock.resource, clock.most, clock.told) == ("cpu", 64_000, "64 cores")
    assert clock.deadline == snapshot.time.after(policy.scheduling.convergence.within)
    assert decode(encode(clock), ConvergenceClock) == clock
    seen = seen_with(snapshot, (clock,))
    later = msgspec.structs.replace(seen, time=seen.time.after(policy.scheduling.convergence.within))
    assert clocks_of(later, policy, "other") == (clock,)
    # Raised in part it keeps its deadline; lowered again it has another beside it.
    (kept,) = clocks_of(later, with_max(policy, 96), "other")
    assert (kept.most, kept.deadline) == (96_000, clock.deadline)
    assert [(one.most, one.commit) for one in clocks_of(later, with_max(policy, 32), "other")] == [
        (64_000, "c0ffee"),
        (32_000, "other"),
    ]
    assert clocks_of(later, with_max(policy, 128), "other") == ()


def test_a_broken_limit_is_told_in_cores_with_who_would_leave(world: tuple[Snapshot, Policy]) -> None:
    snapshot, policy = world
    clocks = clocks_of(snapshot, policy, "c0ffee")
    (found,) = broken_limits(seen_with(snapshot, clocks), policy)
    assert (found.queue, found.what, found.held, found.max) == (
        "builds",
        "cores",
        MilliGpu.gpus(128),
        MilliGpu.gpus(64),
    )
    assert sorted(found.jobs) == ["links", "young"]
    assert found.deadline == clocks[0].deadline


def test_the_checker_refuses_that_gpus_leave_where_work_without_would_do(monkeypatch: pytest.MonkeyPatch) -> None:
    known = read_scenario(SCENARIOS / "host-max-lowered-heals-when-its-time-is-over.yaml")
    right = rules._in_order_of_harm
    monkeypatch.setattr(rules, "_in_order_of_harm", lambda *given: right(*given)[::-1])
    plan = solve(known.snapshot, known.policy, None)
    assert "trains" in {step.job for step in plan.steps if isinstance(step, Evict)}
    assert "S8" in {found.rule for found in violations(known.snapshot, known.policy, plan)}


@pytest.mark.parametrize("decide", [production, greedy])
@pytest.mark.parametrize("row", [CpuQuota(max=Cpu(24_000)), CpuQuota(per_user=Cpu(24_000))], ids=["max", "perUser"])
def test_a_job_whose_queue_or_user_is_above_a_limit_does_not_move(row: CpuQuota, decide: Decide) -> None:
    snapshot, policy = world_of("""
        nodes n1=6 n3=4 n4=3
        class high 1 fixed mayBorrow
        class low -1
        queue x -
        queue y -
        queue y1 in y -
        queue y2 in y -
        run beside y1 4@n3 for 308m high
        run trains y1 1@n4 for 421m low cpu=90
        run apart x 2x1@n1,n4 for 178m high
        wait gang y2 3x2 for 104m high
    """)
    for rows, moves in (((), 1), ((row,), 0)):
        queues = (msgspec.structs.replace(q, host_quota=rows if q.name == "y1" else ()) for q in policy.queues)
        limited = msgspec.structs.replace(policy, queues=tuple(queues))
        plan = decide(snapshot, limited)
        assert violations(snapshot, limited, plan) == ()
        assert sum(isinstance(step, Evict) and step.means == "move" for step in plan.steps) == moves
