"""The program itself: what PuLP states is what the arrays say, another solver agrees, and every start satisfies it."""

from __future__ import annotations

import highspy
import msgspec
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
from solver.milp.highs import optimise, stated
from solver.milp.layers import QuietHighs
from solver.milp.optimiser import Effort, Program
from solver.milp.start_decision import able_to_start, cell_level
from solver.model.arrays import Floats
from solver.model.quantities import Instant
from solver.model.shape import Shape
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName, JobSpec, QueueName, TaskGroup, TopologyRequest
from solver.placement.greedy import greedy
from solver.policy.ordering import Ordering
from solver.policy.policy import Policy, Queue, policy_of
from solver.queueing.demand import sub_layers_of
from solver.round.solve import solve
from tests.drawn import worlds
from tests.solver.round.test_against_brute_force import candidates_of
from tests.solver.worlds import job, node, policies, snapshots

EFFORT = Effort(0.0, 60.0, 0)
many = worlds(60)


@many
@given(snapshots(elastic=True, close=True), policies() | policies(keeping=True))
def test_the_greedy_answer_satisfies_every_row_and_is_not_lost(snapshot: Snapshot, policy: Policy) -> None:
    program, start = formulated(snapshot, policy)
    assert program.is_satisfied_by(start)
    solution = optimise(program, start, EFFORT)
    assert solution is not None
    assert program.is_satisfied_by(solution.values)
    first = program.objectives[0]
    assert solution.reached[0].value >= first.value(start) - 1e-6
    assert all(reached.value <= reached.bound + 1e-6 for reached in solution.reached)


@many
@given(snapshots(elastic=True, close=True), policies())
def test_pulp_states_what_the_arrays_say(snapshot: Snapshot, policy: Policy) -> None:
    program, _ = formulated(snapshot, policy)
    for objective in program.objectives:
        costs = np.zeros(len(program.lower))
        costs[objective.columns] = objective.coefficients
        assert lp_by_pulp(program, costs) == pytest.approx(lp_by_arrays(program, costs), abs=1e-6)


@worlds(25)
@given(snapshots(elastic=True, close=True), policies())
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
    """PuLP would leave it out, and all those after it would be taken for the next."""
    builder = ProgramBuilder()
    first, _, last = (builder.column(1) for _ in range(3))
    builder.at_most({first: 1.0, last: 2.0}, 2.0)
    builder.maximise("layer", {last: 1.0}, exact=True)
    program = builder.build()
    solution = optimise(program, np.zeros(3), EFFORT)
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


def lp_by_arrays(program: Program, costs: Floats) -> float:
    """The LP maximum, HiGHS fed with arrays and nothing in between."""
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(program.lower), len(program.row_lower)
    model.col_cost_, model.sense_ = costs, highspy.ObjSense.kMaximize
    model.col_lower_, model.col_upper_ = program.lower, program.upper
    model.row_lower_, model.row_upper_ = program.row_lower, program.row_upper
    order = np.lexsort((program.entry_column, program.entry_row))
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_ = np.searchsorted(program.entry_row[order], np.arange(len(program.row_lower) + 1))
    model.a_matrix_.index_ = program.entry_column[order]
    model.a_matrix_.value_ = program.entry_value[order]
    highs = QuietHighs()
    highs.passModel(model)
    highs.run()
    return float(highs.getInfo().objective_function_value)


def lp_by_pulp(program: Program, costs: Floats) -> float:
    """The LP maximum of the problem as PuLP states it."""
    problem = stated(program)
    problem.sense = pulp.LpMaximize
    problem.setObjective(pulp.LpAffineExpression(list(zip(problem.variables(), costs.tolist(), strict=True))))
    problem.solve(pulp.HiGHS(mip=False, msg=False))
    return float(pulp.value(problem.objective) or 0.0)


def test_the_program_knows_that_a_strict_queue_serves_its_first_before_a_larger_one() -> None:
    """Without its rows the bound would be that of the larger job, and nothing would be proven."""
    policy = policy_of((Queue(QueueName("q"), ordering=Ordering("fifo", strict=True)),))
    pending = [job("first", "q", 1, 4), job("larger", "q", 1, 8, submitted=1), job("last", "q", 1, 4, submitted=2)]
    certificate = solve(snapshot_of(Instant(9), [node("n1", 8)], pending), policy, optimise).certificate
    assert certificate.columns, "the program was not asked"
    assert [layer.status for layer in certificate.layers] == ["proven"] * len(certificate.layers)


def test_a_gang_of_one_gpu_flows_where_another_that_grows_by_such_tasks_does_not() -> None:
    """Both are kept in a rack: the one fits in a rack of one GPU, of which the other needs two."""
    grown = job("grows", "q", 3, 1, preferred="rack")
    (group,) = grown.spec.task_groups
    elastic = msgspec.structs.replace(
        grown, spec=msgspec.structs.replace(grown.spec, task_groups=(msgspec.structs.replace(group, min_replicas=2),))
    )
    nodes = [node("small", 1, rack="r1", block="b1"), node("large", 2, rack="r2", block="b2")]
    (worker,) = job("one", "q", 1, 1).spec.task_groups
    groups = (worker, TaskGroup("aside", 1, Shape()))
    one = Job(JobName("one"), Instant(0), JobSpec(QueueName("q"), groups, "", TopologyRequest(preferred="rack")))
    snapshot = snapshot_of(Instant(9), nodes, [elastic, one, job("more", "q", 1, 2, submitted=1)])
    program, start = formulated(snapshot, policy_of((Queue(QueueName("q")),)))
    assert program.is_satisfied_by(start)
