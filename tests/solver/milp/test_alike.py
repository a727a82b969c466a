"""What the program of larger clusters states once for all that is alike: the answer is as if each were stated.

Larger clusters are played by tiny ones, so that every layer can be solved to its end.
"""

from __future__ import annotations

from random import Random

import msgspec
import numpy as np
import pytest

from solver.checker.check import violations
from solver.milp import preemption_decision, preemption_places
from solver.milp.ample_types import AmpleTypes
from solver.milp.highs import optimise
from solver.milp.optimiser import Effort, Program, Solution
from solver.milp.preemption_program import PreemptionProgram
from solver.model.arrays import Floats
from solver.model.quantities import Cpu
from solver.model.shape import Shape
from solver.model.snapshot import snapshot_of
from solver.model.workload import Job, TaskGroup
from solver.round.solve import solve
from tests.drawn import counted, first
from tests.solver.laws.generator import drawn
from tests.solver.laws.worlds import World

CORES_PER_GPU = 8
"""Of every node."""


@pytest.fixture(autouse=True)
def as_in_larger_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (preemption_decision, preemption_places):
        monkeypatch.setattr(module, "EXACT_NODES_MAX", 0)
    monkeypatch.setattr(preemption_decision, "GAP", 0.0)
    monkeypatch.setattr(preemption_decision, "NODES_MAX", 1_000_000)


def with_cores(number: int, most: int, *, drivers: bool = False, parts: bool = False) -> World:
    """A world of laws in which jobs take cores beside their GPUs: so many at most beside one.

    `drivers`: some that wait have a task without GPUs as well; `parts`: some ask for parts of GPUs.
    """
    chance, (snapshot, policy) = Random(number), drawn(number, parts=parts)
    nodes = [msgspec.structs.replace(node, cpu=Cpu(1000 * CORES_PER_GPU * len(node.gpus))) for node in snapshot.nodes]

    def drawing(job: Job) -> Job:
        cores = chance.choice([0, CORES_PER_GPU // 2, CORES_PER_GPU, most if job.phase == "pending" else 0])
        groups = tuple(
            msgspec.structs.replace(
                group, shape=msgspec.structs.replace(group.shape, cpu=Cpu(1000 * cores * group.shape.gpus))
            )
            for group in job.spec.task_groups
        )
        if drivers and job.phase == "pending" and chance.random() < 0.5:
            groups += (TaskGroup("driver", 1, Shape(0, cpu=Cpu(1000 * CORES_PER_GPU))),)
        return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, task_groups=groups))

    return World(snapshot_of(snapshot.time, nodes, [drawing(job) for job in snapshot.jobs]), policy)


class FirstReached:
    """An Optimiser in process that notes the first program which chooses victims, and how good each of its layers is.

    `unproven`: by how much more the layers could have reached, added up.
    """

    def __init__(self) -> None:
        self.columns = 0
        self.reached: list[float] = []
        self.unproven = 0.0

    def __call__(self, program: Program, start: Floats, effort: Effort) -> Solution | None:
        solution = optimise(program, start, effort)
        if effort.nodes_max and solution and not self.columns:
            self.columns = len(program.lower)
            self.reached = [layer.value for layer in solution.reached]
            self.unproven = sum(layer.bound - layer.value for layer in solution.reached)
        return solution


def first_reached(world: World) -> FirstReached:
    """The same of a round."""
    asked = FirstReached()
    assert violations(*world, solve(*world, asked)) == ()
    return asked


def alike(one: list[float], other: list[float]) -> bool:
    """Layer by layer as good, as far as two answers of HiGHS are the same."""
    return len(one) == len(other) and bool(np.allclose(one, other, rtol=1e-5, atol=1e-5))


@pytest.mark.parametrize("most", first(1, [CORES_PER_GPU + 2, CORES_PER_GPU]))
def test_jobs_that_differ_in_cores_alone_are_alike_where_cores_suffice(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fewer = same = saved = 0
    for number in range(counted(120)):
        world = with_cores(number, most)
        found = first_reached(world)
        with monkeypatch.context() as apart:
            apart.setattr(AmpleTypes, "found", lambda _: frozenset())
            each = first_reached(world)
        assert alike(found.reached, each.reached), number
        saved += each.columns - found.columns
        fewer += found.columns < each.columns
        same += 0 < found.columns == each.columns
    assert fewer > counted(120) / 8
    assert saved > fewer
    assert same > (0 if most == CORES_PER_GPU else counted(120) / 8)


@pytest.mark.parametrize("more", first(1, ["drivers", "parts"]))
def test_so_they_are_beside_tasks_that_need_cores_or_parts_of_gpus(more: str, monkeypatch: pytest.MonkeyPatch) -> None:
    decided = 0
    for number in range(counted(160)):
        world = with_cores(number, CORES_PER_GPU, drivers=more == "drivers", parts=more == "parts")
        found = first_reached(world)
        with monkeypatch.context() as apart:
            apart.setattr(AmpleTypes, "found", lambda _: frozenset())
            assert alike(found.reached, first_reached(world).reached), number
        decided += found.columns > 0
    assert decided > counted(160) / 4


@pytest.mark.thorough
def test_rows_that_are_open_now_and_then_are_as_tight_as_they_may_be_and_no_tighter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is served ahead of lower work may lie beyond the share, as long as nothing is served inside it."""
    opened = missed = 0
    for number in range(counted(400)):
        world = drawn(number)
        found = first_reached(world)
        with monkeypatch.context() as loose:
            loose.setattr(PreemptionProgram, "_rows_inside", rows_inside_loosely)
            each = first_reached(world)
        # With factors as large as these HiGHS may end with a point that breaks a row.
        missed += bool(found.reached) and not each.reached
        assert alike(found.reached, each.reached) or not each.reached, number
        opened += found.columns < each.columns
    assert opened
    assert missed <= counted(400) / 100


def rows_inside_loosely(self: PreemptionProgram) -> None:
    """The rows with factors that are certainly large enough."""
    for line in self._charged_lines():
        inside, ahead = self._served_below(line, "inside"), self._served_below(line, "ahead", "firm")
        if inside:
            some, most = self.builder.column(1), 1e5
            self.builder.at_most({**inside, some: -most}, 0.0)
            self.builder.at_most(
                {**inside, **ahead, **self._own_credit(line), some: most}, float(self._left(line)) + most
            )


def test_what_highs_loses_on_the_way_back_from_presolve_is_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """HiGHS 1.16.0 said 0.5 of harm in this one and came with a point of 14.9."""
    monkeypatch.setattr(AmpleTypes, "found", lambda _: frozenset())
    asked = first_reached(with_cores(50, CORES_PER_GPU))
    assert asked.columns == 38
    assert asked.unproven < 1e-6


def test_cores_that_lack_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were they not, jobs would be promised places that they do not find: the other tests would see that."""
    monkeypatch.setattr(AmpleTypes, "_is_ample", lambda *_: True)
    differing = 0
    for number in range(counted(120)):
        world = with_cores(number, CORES_PER_GPU + 2)
        careless = first_reached(world)
        with monkeypatch.context() as apart:
            apart.setattr(AmpleTypes, "found", lambda _: frozenset())
            differing += not alike(careless.reached, first_reached(world).reached)
    assert differing


@pytest.mark.thorough
def test_exceptions_counted_together_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two jobs of which each is credited in halves may then count as one exception: so there is as much in the first layer that
    differs, or more.
    """
    fewer = 0
    for number in range(counted(600)):
        world = drawn(number)
        columns = first_columns(world)
        with monkeypatch.context() as apart:
            apart.setattr(PreemptionProgram, "_payer_of", lambda _, group, __: group)
            if first_columns(world) == columns:
                continue
            each = first_reached(world)
        fewer += 1
        found = first_reached(world)
        differing = [(a, b) for a, b in zip(found.reached, each.reached, strict=True) if not alike([a], [b])]
        assert not differing or differing[0][0] > differing[0][1], number
    assert fewer > counted(600) / 200


def first_columns(world: World) -> int:
    """Of the first program which chooses victims in a round, without running it; 0: there is none."""
    found = list[int]()

    def refuse(program: Program, start: Floats, effort: Effort) -> Solution | None:
        found.extend([len(program.lower)] * bool(effort.nodes_max))
        return None

    solve(*world, refuse)
    return found[0] if found else 0
