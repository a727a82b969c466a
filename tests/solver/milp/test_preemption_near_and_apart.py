"""Bundles and spreads in the program that chooses victims: on random tiny worlds no plan breaks them."""

from __future__ import annotations

from collections import Counter
from random import Random

import msgspec
import pytest

from solver.checker.check import violations
from solver.milp import preemption_decision
from solver.milp.highs import optimise
from solver.milp.preemption_flows import is_kept_near_or_apart
from solver.model.snapshot import snapshot_of
from solver.model.workload import Bundle, Job, Spread, Together, TopologyRequest
from solver.round.solve import solve
from tests.drawn import counted
from tests.solver.laws.generator import drawn
from tests.solver.laws.worlds import World

WISHES = (
    TopologyRequest(group=Bundle(2, "rack")),
    TopologyRequest(group=Bundle(2, "island")),
    TopologyRequest(required="rack", group=Bundle(2, "island")),
    TopologyRequest(group=(Bundle(2, "island"), Bundle(4, "rack"))),
    TopologyRequest(group=Bundle(2, "rack", "island")),
    TopologyRequest(together=(Together(("g0", "g1"), "rack"),)),
    TopologyRequest(together=(Together(("g0", "g1"), "island", None),), group=Bundle(2, "island")),
    TopologyRequest(spread=Spread("node", 1)),
    TopologyRequest(spread=Spread("rack", 1)),
    TopologyRequest(spread=Spread("node", 2)),
)


def near_and_apart(number: int) -> World:
    """A world of laws on two racks of two islands, in which jobs that wait with several tasks have these together or apart."""
    chance, (snapshot, policy) = Random(number), drawn(number)
    nodes = [
        msgspec.structs.replace(node, island=f"i{place}", rack=f"r{place // 2}", block="b")
        for place, node in enumerate(snapshot.nodes)
    ]

    def wishing(job: Job) -> Job:
        if job.phase != "pending" or job.spec.tasks < 2:
            return job
        topology, groups = chance.choice(WISHES), job.spec.task_groups
        if topology.together:
            (group,) = groups
            groups = tuple(
                msgspec.structs.replace(group, name=name, replicas=replicas, min_replicas=None)
                for name, replicas in (("g0", 1), ("g1", group.replicas - 1))
            )
        return msgspec.structs.replace(
            job, spec=msgspec.structs.replace(job.spec, topology=topology, task_groups=groups)
        )

    return World(snapshot_of(snapshot.time, nodes, [wishing(job) for job in snapshot.jobs]), policy)


def test_bundles_and_spreads_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    answers, serve = Counter[bool](), preemption_decision.PreemptionDecision.serve

    def counting(self: preemption_decision.PreemptionDecision, *arguments: object) -> bool:
        found = serve(self, *arguments)  # type: ignore[arg-type]
        if any(is_kept_near_or_apart(column.job_class.first.job.spec) for column in self.program.served.values()):
            answers[found] += 1
        return found

    monkeypatch.setattr(preemption_decision.PreemptionDecision, "serve", counting)
    for number in range(counted(600)):
        world = near_and_apart(number)
        assert violations(*world, solve(*world, optimise)) == ()
    assert answers[True] > counted(600) / 20
    assert answers[False] <= answers[True] / 10
