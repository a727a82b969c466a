"""What queues keep back, in the program that chooses victims: on random tiny worlds no plan lends more than may be lent."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from solver.checker.check import violations
from solver.milp import preemption_decision
from solver.milp.highs import optimise
from solver.model.quantities import MilliGpu
from solver.policy.policy import Queue, policy_of
from solver.round.solve import solve
from tests.drawn import counted
from tests.solver.laws.generator import drawn
from tests.solver.laws.worlds import World


def keeping_back(number: int) -> World:
    """A world of laws in which some queues lend only a part of their guarantees, or nothing."""
    chance, (snapshot, policy) = Random(number), drawn(number)

    def lending(queue: Queue) -> Queue:
        (quota,) = queue.quota
        if not quota.guaranteed or chance.random() < 0.3:
            return queue
        lent = MilliGpu.gpus(chance.randint(0, int(quota.guaranteed) // 1000))
        return msgspec.structs.replace(queue, quota=(msgspec.structs.replace(quota, lendable=lent),))

    queues = tuple(map(lending, policy.queues))
    return World(snapshot, policy_of(queues, policy.priority_classes, policy.scheduling, policy.sharing))


def test_no_plan_lends_what_is_kept_back(monkeypatch: pytest.MonkeyPatch) -> None:
    decided, serve = 0, preemption_decision.PreemptionDecision.serve

    def counting(self: preemption_decision.PreemptionDecision, *arguments: object) -> bool:
        nonlocal decided
        found = serve(self, *arguments)  # type: ignore[arg-type]
        decided += found and bool(self.making.attempts.headroom.shares.lending.kept)
        return found

    monkeypatch.setattr(preemption_decision.PreemptionDecision, "serve", counting)
    for number in range(counted(600)):
        world = keeping_back(number)
        assert violations(*world, solve(*world, optimise)) == ()
    assert decided > counted(600) / 20
