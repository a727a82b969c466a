"""Evictions for CPU and memory, lawful and not, before the checker."""

from __future__ import annotations

import msgspec
import pytest

from solver.checker.check import violations
from solver.plan.plan import Evict, Nominate, Plan
from tests.solver.laws.judge import greedy, production
from tests.solver.laws.worlds import World, world_of

HOG = (
    "nodes n1=8\nqueue a 8\nqueue b 0\nrun hog b 0@n1 for 90m cpu=90\nrun small b 0@n1 for 90m cpu=1\nwait w a {asked}"
)


def rules(world: World, plan: Plan) -> set[str]:
    """Those that are broken."""
    return {known.rule for known in violations(*world, plan)}


def told_by(of: World, shown: World) -> Plan:
    """The plan for one world, as if it were for the other, in which jobs have the same names."""
    plan = production(*of)
    return msgspec.structs.replace(plan, snapshot=shown.snapshot.digest, policy=shown.policy.digest)


@pytest.mark.parametrize("decide", [production, greedy])
def test_work_without_gpus_leaves_for_what_gpus_carry(decide: object) -> None:
    world = world_of(HOG.format(asked="8 for 9m cpu=64"))
    plan = decide(*world)  # type: ignore[operator]
    assert [step.job for step in plan.steps if isinstance(step, Evict)] == ["hog"]
    assert rules(world, plan) == set()


def test_nothing_leaves_for_more_than_gpus_carry() -> None:
    allowed = told_by(world_of(HOG.format(asked="4 for 9m cpu=48")), world_of(HOG.format(asked="1 for 9m cpu=48")))
    assert any(isinstance(step, Evict) for step in allowed.steps)
    world = world_of(HOG.format(asked="1 for 9m cpu=48"))
    steps = (
        msgspec.structs.replace(
            step,
            tasks=tuple(msgspec.structs.replace(task, devices=task.devices[:1]) for task in step.tasks),
        )
        if isinstance(step, Nominate)
        else step
        for step in allowed.steps
    )
    found = violations(*world, msgspec.structs.replace(allowed, steps=tuple(steps)))
    assert [known.subject for known in found if known.rule == "S4" and "GPUs carry" in known.problem] == ["w"]


def test_no_gpu_leaves_for_work_without() -> None:
    text = "nodes n1=8\nclass high 1\nqueue a 8\nrun t a {gpus}@n1 for 90m cpu=90\nwait w a 0 for 9m high cpu=40"
    without, world = world_of(text.format(gpus=0)), world_of(text.format(gpus=1))
    assert rules(without, production(*without)) == set()
    found = violations(*world, told_by(without, world))
    assert any(known.rule == "S4" and "has GPUs" in known.problem for known in found)


def test_a_job_beyond_its_share_leaves_only_for_one_that_is_not() -> None:
    text = "nodes n1=8\nqueue a 7\nqueue b 1\nrun wide b 1@n1 for 90m cpu=90\nwait w a 7 for 9m cpu={cpu}"
    world, beyond = world_of(text.format(cpu=84)), world_of(text.format(cpu=85))
    plan = production(*world)
    assert [step.means for step in plan.steps if isinstance(step, Evict)] == ["straddle"]
    assert rules(world, plan) == set()
    assert not any(isinstance(step, Evict) for step in production(*beyond).steps)
    assert "S4" in rules(beyond, told_by(world, beyond))
