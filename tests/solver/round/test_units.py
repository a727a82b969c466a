"""Tasks of several groups that come and go together: gangs have whole units, and the checker refuses parts of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given

from solver.checker.check import violations
from solver.milp.highs import optimise
from solver.model.snapshot import Snapshot
from solver.model.workload import Job, TaskPlacement
from solver.plan.plan import Bind, Evict, Grow, Plan, Shrink
from solver.policy.policy import Policy
from solver.round.solve import solve
from tests.drawn import worlds
from tests.scenarios.loader import Scenario, read_scenario
from tests.solver.aftermath import applied, victims_gone
from tests.solver.worlds import policies, snapshots, with_units

many = worlds(200)
UNITS = snapshots(nodes_max=5, jobs_max=4, sizes=(1, 2), held_one_in=2).flatmap(lambda world: with_units(world, True))


def torn(job: Job, tasks: tuple[TaskPlacement, ...]) -> bool:
    """Whether a unit has not all of its tasks."""
    for known in job.spec.topology.together:
        sizes = {group.name: group.replicas // known.units for group in job.spec.task_groups if known.units > 1}
        parts = Counter((task.group, task.index // sizes[task.group]) for task in tasks if sizes)
        numbers = {number for _, number in parts}
        if any(parts[name, number] != size for name, size in sizes.items() for number in numbers):
            return True
    return False


@many
@given(UNITS, policies() | policies(keeping=True))
def test_no_plan_breaks_a_rule_nor_tears_a_unit(snapshot: Snapshot, policy: Policy) -> None:
    for optimiser in (None, optimise):
        world = snapshot
        for _ in range(2):
            plan = solve(world, policy, optimiser)
            assert violations(world, policy, plan) == ()
            world = victims_gone(applied(world, plan))
            assert not any(torn(job, job.placement) for job in world.jobs)


@pytest.mark.thorough
@many
@given(UNITS, policies() | policies(keeping=True))
def test_names_of_groups_decide_nothing(snapshot: Snapshot, policy: Policy) -> None:
    def renamed(job: Job) -> Job:
        other = {"g0": "zero", "g1": "one"}
        groups = tuple(
            msgspec.structs.replace(group, name=other.get(group.name, group.name)) for group in job.spec.task_groups
        )
        together = tuple(
            msgspec.structs.replace(known, groups=tuple(other[name] for name in known.groups))
            for known in job.spec.topology.together
        )
        topology = msgspec.structs.replace(job.spec.topology, together=together)
        spec = msgspec.structs.replace(job.spec, task_groups=groups, topology=topology)
        tasks = (msgspec.structs.replace(task, group=other.get(task.group, task.group)) for task in job.placement)
        return msgspec.structs.replace(job, spec=spec, placement=tuple(tasks))

    other = msgspec.structs.replace(snapshot, jobs=tuple(map(renamed, snapshot.jobs)))
    first, second = solve(snapshot, policy, optimise), solve(other, policy, optimise)
    assert [layer.value for layer in first.certificate.layers] == [layer.value for layer in second.certificate.layers]
    assert told(first) == told(second)


def told(plan: Plan) -> list[tuple[object, ...]]:
    """What starts, grows, shrinks and leaves, with the nodes and devices of its tasks, without the names of groups."""
    return [
        (
            type(step),
            step.job,
            sorted((task.index, task.node, task.devices) for task in getattr(step, "tasks", ())),
        )
        for step in plan.steps
        if isinstance(step, Bind | Evict | Grow | Shrink)
    ]


SCENARIOS = Path(__file__).parents[2] / "scenarios"


def plan_for(name: str) -> tuple[Scenario, Plan]:
    """A scenario about units of two groups, and the plan for it."""
    scenario = read_scenario(SCENARIOS / f"units-of-two-groups-{name}.yaml")
    return scenario, solve(scenario.snapshot, scenario.policy, optimise)


def faulty(scenario: Scenario, plan: Plan, change: Callable[[tuple[TaskPlacement, ...]], object]) -> list[str]:
    """What the checker says of the plan whose first step has other tasks."""
    first, *others = plan.steps
    steps = (msgspec.structs.replace(first, tasks=change(first.tasks)), *others)  # type: ignore[union-attr]
    found = violations(scenario.snapshot, scenario.policy, msgspec.structs.replace(plan, steps=steps))
    return [f"{known.rule} {known.problem}" for known in found]


def test_a_start_without_a_task_of_a_unit_is_refused() -> None:
    scenario, plan = plan_for("start-whole")
    (start,) = (step for step in plan.steps if isinstance(step, Bind))
    assert len(start.tasks) == 9
    told = faulty(
        scenario,
        plan,
        lambda tasks: tuple(t for t in tasks if (t.group, t.index) < ("decode", 4) or t.group != "decode"),
    )
    assert "S2 binds units of 3 of group prefill, 2 of group decode; of at least 2 it has each whole" in told


def test_a_start_of_too_few_units_is_refused() -> None:
    scenario, plan = plan_for("start-whole")
    told = faulty(
        scenario, plan, lambda tasks: tuple(t for t in tasks if t.index < {"prefill": 1, "decode": 2}[t.group])
    )
    assert any("which starts with 2 to 4" in problem for problem in told)


def test_a_unit_over_two_racks_is_refused() -> None:
    scenario, plan = plan_for("start-whole")

    def exchanged(tasks: tuple[TaskPlacement, ...]) -> tuple[TaskPlacement, ...]:
        """The prefill tasks of the first two units, each in the other's place."""
        first, second = (task for task in tasks if task.group == "prefill" and task.index < 2)
        there = {0: second, 1: first}
        return tuple(
            msgspec.structs.replace(task, node=there[task.index].node, devices=there[task.index].devices)
            if task.group == "prefill" and task.index < 2
            else task
            for task in tasks
        )

    told = faulty(scenario, plan, exchanged)
    assert any(problem.startswith("S5 unit 0 of the groups prefill and decode are spread over") for problem in told)


def test_a_part_of_a_unit_that_leaves_is_refused() -> None:
    scenario, plan = plan_for("shrink-whole")
    told = faulty(scenario, plan, lambda tasks: tasks[:1])
    assert "S2 keeps a part of unit 2 of groups prefill and decode" in told


def test_a_part_of_a_unit_that_joins_is_refused() -> None:
    scenario, plan = plan_for("grow-again")
    assert [task.index for task in plan.steps[0].tasks] == [1, 2, 3]  # type: ignore[union-attr]
    told = faulty(scenario, plan, lambda tasks: tasks[:1])
    assert "S2 grows by a part of unit 1 of groups prefill and decode" in told


def test_a_unit_that_has_lost_a_task_gets_it_back() -> None:
    scenario, _ = plan_for("grow-again")
    (gang,) = (known for known in scenario.snapshot.jobs if known.name == "serving")
    lost = msgspec.structs.replace(
        gang, placement=tuple(t for t in gang.placement if (t.group, t.index) != ("decode", 4))
    )
    jobs = tuple(lost if known is gang else known for known in scenario.snapshot.jobs)
    world = msgspec.structs.replace(scenario.snapshot, jobs=jobs)
    for optimiser in (None, optimise):
        plan = solve(world, scenario.policy, optimiser)
        assert violations(world, scenario.policy, plan) == ()
        (grow,) = (step for step in plan.steps if isinstance(step, Grow))
        assert [(task.group, task.index) for task in grow.tasks if task.index == 4] == [("decode", 4)]
        assert len(grow.tasks) == 4
