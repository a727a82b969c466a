"""What a plan says of all jobs is told once it says all of that."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from reconciler.control.runner import LoopStatus
from reconciler.server.services import ControlPlaneView
from solver.model.workload import JobName, QueueName
from solver.plan.plan import Waits

SAID = (Waits(JobName("waits"), QueueName("team"), ()),)


def verdicts_of(last: Any) -> Any:
    nothing: Any = None
    runner: Any = SimpleNamespace(status=LoopStatus("leading", last=last))
    return ControlPlaneView(nothing, nothing, runner, nothing).verdicts()


def test_all_verdicts_of_a_whole_plan_and_none_of_half_a_plan() -> None:
    plan = SimpleNamespace(verdicts=SAID)
    assert verdicts_of(SimpleNamespace(plan=plan, is_whole=True)) is SAID
    assert verdicts_of(SimpleNamespace(plan=plan, is_whole=False)) is None
    assert verdicts_of(None) is None
