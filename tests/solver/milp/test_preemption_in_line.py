"""Strict queues in the program that chooses victims: on random tiny worlds no plan breaks the order, and none serves less."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from solver.checker.check import violations
from solver.milp import preemption_decision
from solver.milp.highs import optimise
from solver.plan.plan import Bind, Nominate, Plan
from solver.policy.ordering import Ordering
from solver.policy.policy import policy_of
from solver.round.solve import solve
from tests.drawn import counted
from tests.solver.laws.generator import drawn
from tests.solver.laws.worlds import World


def in_line(number: int) -> World:
    """A world of laws in which some queues are strict."""
    chance, (snapshot, policy) = Random(number), drawn(number)
    queues = tuple(
        msgspec.structs.replace(queue, ordering=Ordering(strict=True)) if chance.random() < 0.7 else queue
        for queue in policy.queues
    )
    return World(snapshot, policy_of(queues, policy.priority_classes, policy.scheduling, policy.sharing))


def served(plan: Plan, world: World) -> int:
    """Milli-GPU of jobs that wait and start, or are promised theirs."""
    waiting = {job.name for job in world.snapshot.jobs if job.phase == "pending"}
    steps = (step for step in plan.steps if isinstance(step, Bind | Nominate) and step.job in waiting)
    return sum(int(task.gpus) for step in steps for task in step.tasks)


def test_no_job_passes_one_of_its_strict_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    decided, serve = 0, preemption_decision.PreemptionDecision.serve

    def counting(self: preemption_decision.PreemptionDecision, *arguments: object) -> bool:
        nonlocal decided
        found = serve(self, *arguments)  # type: ignore[arg-type]
        decided += found and any(column.job_class.strict for column in self.program.served.values())
        return found

    monkeypatch.setattr(preemption_decision.PreemptionDecision, "serve", counting)
    for number in range(counted(400)):
        world = in_line(number)
        assert violations(*world, solve(*world, optimise)) == ()
    assert decided > counted(400) / 10
