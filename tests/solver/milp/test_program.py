"""The program itself: another solver agrees, and every start satisfies it."""

from __future__ import annotations

import highspy
import numpy as np
import pulp
import pytest
from hypothesis import given

from solver.capacity.free_capacity import FreeCapacity
from solver.capacity.partitioning import pool_rules
from solver.capacity.sharing import sharing_of
from solver.milp.builder import ProgramBuilder
from solver.milp.cells import Cells
from solver.milp.classes import classes_of
from solver.milp.conversion import point_of
from solver.milp.formulation import Formulation
from solver.milp.highs import optimise
from solver.milp.layers import Models
from solver.milp.optimiser import Effort, Program
from solver.milp.pulp_model import optimise_by_pulp, stated
from solver.milp.start_decision import able_to_start, cell_level
from solver.model.arrays import Floats
from solver.model.snapshot import Snapshot
from solver.placement.greedy import greedy
from solver.policy.policy import Policy
from solver.queueing.demand import sub_layers_of
from tests.drawn import worlds
from tests.solver.laws.worlds import world_of
from tests.solver.round.test_against_brute_force import candidates_of
from tests.solver.worlds import policies, snapshots

EFFORT = Effort(0.0, 60.0, 0)
many = worlds(60)


@many
@given(snapshots(elastic=True, close=True, inner=True), policies() | policies(keeping=True))
def test_the_greedy_answer_satisfies_every_row_and_is_not_lost(snapshot: Snapshot, policy: Policy) -> None:
    program, start = formulated(snapshot, policy)
    assert program.is_satisfied_by(start)
    solution = optimise(program, start, EFFORT)
    assert solution is not None
    assert program.is_satisfied_by(solution.values)
    first = program.objectives[0]
    assert solution.reached[0].value >= first.value(start) - 1e-6
    assert all(reached.value <= reached.bound + 1e-6 for reached in solution.reached)


@worlds(25)
@given(snapshots(elastic=True, close=True, inner=True), policies())
def test_cbc_agrees_on_the_first_layer(snapshot: Snapshot, policy: Policy) -> None:
    program, start = formulated(snapshot, policy)
    solution = optimise(program, start, EFFORT)
    objective = program.objectives[0]
    if solution is None or not len(objective.columns):
        return
    problem = stated(program)
    columns = problem.variables()
    problem.sense = pulp.LpMaximize
    problem.setObjective(
        pulp.LpAffineExpression(
            [(columns[c], f) for c, f in zip(objective.columns.tolist(), objective.coefficients.tolist(), strict=True)]
        )
    )
    problem.solve(pulp.COIN_CMD(path=pulp.apis.coin_api.pulp_cbc_path, msg=False))
    assert problem.sol_status == pulp.LpSolutionOptimal
    assert pulp.value(problem.objective) == pytest.approx(solution.reached[0].value, abs=1e-5)


def test_a_column_that_nothing_names_keeps_its_number() -> None:
    """PuLP leaves it out unless it is told of it, and all those after it would be taken for the next."""
    builder = ProgramBuilder()
    first, _, last = (builder.column(1) for _ in range(3))
    builder.at_most({first: 1.0, last: 2.0}, 2.0)
    builder.maximise("layer", {last: 1.0}, exact=True)
    program = builder.build()
    for optimiser in (optimise, optimise_by_pulp):
        solution = optimiser(program, np.zeros(3), EFFORT)
        assert solution is not None
        assert solution.values[last] == 1.0
        assert solution.reached[0].bound == pytest.approx(1.0)


def test_a_point_that_breaks_a_row_once_it_is_made_whole_is_looked_for_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """HiGHS admits a millionth of a whole. It was taken for a layer that nothing is found in."""
    world = world_of("nodes n1=4 n2=4; queue a 8; wait v a 1x3 for 30m; wait w a 1x2 for 20m; wait x a 2x2 for 10m")
    program, start = formulated(world.snapshot, world.policy)
    known, spoilt = optimise(program, start, EFFORT), list[int]()
    point = Models.point

    def nearly(self: Models, model: highspy.Highs) -> Floats | None:
        found = point(self, model)
        if model is not self.stated or found is None:
            return found
        spoilt.append(1)
        return np.full_like(found, -1.0)

    monkeypatch.setattr(Models, "point", nearly)
    anew = optimise(program, np.zeros_like(start), EFFORT)
    assert spoilt
    assert known is not None
    assert anew is not None
    assert [layer.value for layer in anew.reached] == pytest.approx([layer.value for layer in known.reached])


def formulated(snapshot: Snapshot, policy: Policy) -> tuple[Program, Floats]:
    """The program of a world's round and its greedy start."""
    candidates, shares = candidates_of(snapshot, policy)
    room = FreeCapacity.of(
        snapshot, sharing_of(policy, shares.tree, snapshot.nodes).domain, pool_rules(policy, snapshot)
    )
    able = able_to_start(candidates, room, shares)
    classes = classes_of(able)
    sub_layers = sub_layers_of(able)
    formulation = Formulation(classes, Cells(room, cell_level(classes)), shares, sub_layers)
    formulation.state()
    program = formulation.builder.build()
    return program, point_of(greedy(able, room.copy(), shares), formulation, program, room)
