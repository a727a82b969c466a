"""The checker counts what fractions take where they go on. The good plan first: three quarters move to the GPU of a fourth."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
import pytest

from solver.checker.case import moving
from solver.checker.check import violations
from solver.model.cluster import DeviceId, NodeName
from solver.model.quantities import MilliGpu
from solver.model.workload import JobName, TaskPlacement
from solver.plan.plan import Nominate, Plan
from solver.round.solve import solve
from tests.solver.laws.worlds import World, world_of

WORLD = world_of(
    """
    nodes n1=5
    rules shared
    queue a 5
    run q0 a 0.25@n1/0 for 60m
    run q1 a 0.25@n1/1 for 61m
    run q2 a 0.25@n1/2 for 62m
    run q3 a 0.25@n1/3 for 63m
    run half a 0.5@n1/4 for 1m
    run more a 0.25@n1/4 for 90m
    wait w a 3 for 9m
    """
)


def good(world: World = WORLD) -> Plan:
    return solve(*world, None)


def to(device: str, share: float = 0.25) -> tuple[TaskPlacement, ...]:
    return (TaskPlacement("worker", 0, NodeName("n1"), (DeviceId(device),), MilliGpu(round(share * 1000)), "mps"),)


def with_places(places: Mapping[str, tuple[TaskPlacement, ...]]) -> Plan:
    """The good plan with other places for some to go on."""
    plan = good()
    steps = (
        msgspec.structs.replace(step, tasks=places[step.job])
        if isinstance(step, Nominate) and step.job in places
        else step
        for step in plan.steps
    )
    return msgspec.structs.replace(plan, steps=tuple(steps))


def test_the_good_plan_is_good() -> None:
    plan = good()
    assert violations(*WORLD, plan) == ()
    assert moving(plan) == {"q0", "q1", "q2"}
    there = {step.job: step.tasks[0].devices for step in plan.steps if isinstance(step, Nominate)}
    assert {there[JobName(name)] for name in ("q0", "q1", "q2")} == {("n1/3",), ("n1/4",)}


SPOILED: dict[str, tuple[Callable[[], Plan], str]] = {
    "beside more than leaves it room": (lambda: with_places({"q0": to("n1/4"), "q1": to("n1/4")}), "S9"),
    "to a GPU that is to be whole": (lambda: with_places({"q0": to("n1/1")}), "S1"),
    "to where it is": (lambda: with_places({"q0": to("n1/0")}), "S8"),
    "to more than it has": (lambda: with_places({"q0": to("n1/3", 0.5)}), "S4"),
}


@pytest.mark.parametrize("name", SPOILED)
def test_what_is_spoiled_is_found(name: str) -> None:
    spoil, rule = SPOILED[name]
    assert rule in {violation.rule for violation in violations(*WORLD, spoil())}
