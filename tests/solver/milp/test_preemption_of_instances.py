"""MIG instances in the program that chooses victims: on random tiny worlds no plan breaks a rule, and few answers find no place."""

from __future__ import annotations

from collections import Counter
from unittest.mock import patch

from hypothesis import given

from solver.checker.check import violations
from solver.milp import preemption_decision
from solver.milp.highs import optimise
from solver.model.shape import MigShape
from solver.model.snapshot import Snapshot
from solver.policy.policy import Policy
from solver.round.solve import solve
from tests.drawn import worlds
from tests.solver.preemption.test_mig_evictions import lent
from tests.solver.round.test_mig import partitioned


def test_who_leaves_an_instance_does_so_by_the_rules() -> None:
    answers, serve = Counter[bool](), preemption_decision.PreemptionDecision.serve

    def counting(self: preemption_decision.PreemptionDecision, *arguments: object) -> bool:
        found = serve(self, *arguments)  # type: ignore[arg-type]
        served = self.program.served.values()
        if any(isinstance(shape, MigShape) for known in served for shape in known.option.shapes):
            answers[found] += 1
        return found

    @worlds(150)
    @given(partitioned())
    def judge(world: tuple[Snapshot, Policy]) -> None:
        snapshot, policy = lent(world)
        assert violations(snapshot, policy, solve(snapshot, policy, optimise)) == ()

    with patch.object(preemption_decision.PreemptionDecision, "serve", counting):
        judge()
    assert answers[True] > 10 * answers[False]
