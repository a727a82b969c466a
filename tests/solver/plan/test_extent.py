"""How far apart a gang lies, by hand; and the checker, which counts it again, believes nothing else."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given

from solver.checker.check import violations
from solver.milp.highs import optimise
from solver.model.cluster import Level
from solver.model.quantities import Instant
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import QueueName
from solver.plan.extent import Extent, extent_of
from solver.plan.plan import Starts
from solver.policy.policy import Policy, Queue, policy_of
from solver.round.solve import solve
from tests.drawn import worlds
from tests.solver.worlds import job, node, policies, snapshots

Wish = Level | tuple[Level, ...] | None
NODES = {
    known.name: msgspec.structs.replace(known, island=f"i{number // 2}" if number < 2 else "")
    for number, known in enumerate(node(f"n{n}", 8, rack=f"r{n // 3}", block=f"b{n // 6}", pool="p") for n in range(12))
}
OTHER = node("m", 8, pool="q")


@pytest.mark.parametrize(
    ("hosts", "preferred", "said"),
    [
        ("n0 n0", None, "in one island, p/i0"),
        ("n0 n1", "rack", "in one island, p/i0"),
        ("n0 n2", "rack", "in one rack, p/r0"),
        ("n0 n2", "block", "in one rack, p/r0"),
        ("n0 n2", None, "over 2 islands of rack p/r0"),
        ("n0 n1 n2 n3", None, "over 2 racks of block p/b0"),
        ("n0 n1 n2 n3", "island", "over 3 islands of block p/b0; it prefers one island"),
        ("n0 n1 n2 n3", ("rack", "block"), "over 2 racks of block p/b0; it prefers one rack"),
        ("n0 n3 n6 n9", ("block", "rack"), "over 4 racks of pool p; it prefers one rack and one block"),
        ("n0 n6", "pool", "in one pool, p"),
        ("n0 n6 m", None, "over 2 pools"),
        ("n0 n6 m", "rack", "over 3 racks; it prefers one rack"),
    ],
)
def test_by_hand(hosts: str, preferred: Wish, said: str) -> None:
    known = [OTHER if name == "m" else NODES[name] for name in hosts.split()]  # type: ignore[index]
    spec = job("a", "q", len(known), 1, preferred=preferred).spec  # type: ignore[arg-type]
    assert str(extent_of(spec, known)) == said


def test_a_single_task_is_near_itself() -> None:
    assert extent_of(job("a", "q", 1, 1, preferred="rack").spec, [OTHER]) is None


@worlds(100)
@given(snapshots(close=True, inner=True), policies())
def test_the_checker_counts_the_same(snapshot: Snapshot, policy: Policy) -> None:
    plan = solve(snapshot, policy, None)
    assert violations(snapshot, policy, plan) == ()
    placed = {verdict.job: verdict for verdict in plan.verdicts if isinstance(verdict, Starts)}
    jobs = {known.name: known for known in snapshot.jobs}
    assert all((verdict.extent is None) == (jobs[name].spec.tasks == 1) for name, verdict in placed.items())


@pytest.mark.parametrize(
    "lie",
    [
        {"missed": ()},
        {"missed": ("rack", "block")},
        {"within": "rack"},
        {"within": None, "domain": ""},
        {"domain": "p/b1"},
        {"domains": 1},
        {"level": "island"},
    ],
)
def test_it_believes_nothing_else(lie: dict[str, Any]) -> None:
    gang = job("a", "q", 2, 8, preferred="rack")
    snapshot = snapshot_of(Instant(0), [NODES["n0"], NODES["n3"]], [gang])  # type: ignore[index]
    policy = policy_of((Queue(QueueName("q")),))
    plan = solve(snapshot, policy, optimise)
    (verdict,) = plan.verdicts
    assert isinstance(verdict, Starts)
    assert verdict.extent == Extent("rack", 2, "block", "p/b0", ("rack",))
    for claimed in (msgspec.structs.replace(verdict.extent, **lie), None):
        false = msgspec.structs.replace(plan, verdicts=(msgspec.structs.replace(verdict, extent=claimed),))
        assert [found.rule for found in violations(snapshot, policy, false)] == ["verdicts"]
