"""The program itself: another solver agrees, and every start satisfies it."""

from __future__ import annotations

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
from solver.milp.optimiser import Effort, Program
from solver.milp.pulp_model import optimise_by_pulp, stated
from solver.milp.start_decision import able_to_start, cell_level
from solver.model.arrays import Floats
from solver.model.snapshot import Snapshot
from solver.placement.greedy import greedy
from solver.policy.policy import Policy
from solver.queueing.demand import sub_layers_of
from tests.drawn import worlds
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
