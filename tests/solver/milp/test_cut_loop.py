"""In exact mode every layer of a small round has the value that trying everything finds, and the certificate proves it."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

from solver.milp.cells import Cells
from solver.milp.certificate import same
from solver.milp.classes import classes_of
from solver.milp.cut_loop import Deciding
from solver.milp.formulation import Formulation
from solver.milp.highs import optimise
from solver.milp.optimiser import Effort, Program, Reached, Solution
from solver.milp.start_decision import able_to_start, begin, closest_cell_level
from solver.model.arrays import Floats
from solver.model.quantities import Instant
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import QueueName, Spread
from solver.placement.starts import layer_names, layer_values
from solver.plan.plan import Certificate
from solver.policy.division import MigGeometry
from solver.policy.policy import Policy, Queue, SchedulingPolicy, SolverLimits, SolverMode, policy_of
from solver.round.solve import solve
from tests.drawn import counted
from tests.solver.brute_force import best_values
from tests.solver.round.test_against_brute_force import patient, world_of
from tests.solver.worlds import job, node, policies, snapshots

WORLDS: dict[str, tuple[SearchStrategy[Snapshot], int]] = {
    "plain": (snapshots(nodes_max=4, jobs_max=4, held_one_in=5), 700),
    "elastic": (snapshots(nodes_max=3, jobs_max=3, elastic=True, held_one_in=8), 500),
    "close": (snapshots(nodes_max=4, jobs_max=3, close=True, held_one_in=8), 500),
    "elastic and close": (snapshots(nodes_max=3, jobs_max=3, elastic=True, close=True, held_one_in=8), 300),
    "patient": (snapshots(nodes_max=4, jobs_max=3, held_one_in=4).map(patient), 300),
}
"""Random worlds by what they are about, and how many of each: 2,300 together."""


@dataclass
class Tally:
    """What was found in so many rounds."""

    rounds: int = 0
    mismatches: list[str] = field(default_factory=list)


@pytest.mark.parametrize(
    "about",
    [pytest.param(about, marks=pytest.mark.thorough if about == "plain" else pytest.mark.long) for about in WORLDS],
)
def test_every_layer_has_the_value_that_trying_everything_finds(about: str) -> None:
    worlds, examples = WORLDS[about][0], counted(WORLDS[about][1])
    tally = compared(worlds, examples)
    assert tally.rounds == examples
    assert not tally.mismatches, "\n".join(tally.mismatches)


def compared(worlds: SearchStrategy[Snapshot], examples: int, seed_of: int = 2027) -> Tally:
    """Decide so many rounds exactly and try everything."""
    tally = Tally()

    @seed(seed_of)
    @settings(max_examples=examples, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(worlds, policies())
    def compare(snapshot: Snapshot, policy: Policy) -> None:
        tally.rounds += 1
        tally.mismatches += [f"round {tally.rounds}: {mismatch}" for mismatch in mismatches(snapshot, exactly(policy))]

    compare()
    return tally


def mismatches(snapshot: Snapshot, policy: Policy) -> list[str]:
    """Each layer in which the round's answer is not the best, or not proven to be; and the same for the program's alone."""
    candidates, room, shares, sub_layers = world_of(snapshot, policy)
    best, names = best_values(candidates, room, shares, sub_layers), layer_names(sub_layers)
    answer = begin(candidates, room, shares, policy.scheduling.solver, optimise).answer()
    # Greedy is often as good, and a program that starts from it need not find anything.
    able = able_to_start(candidates, room, shares)
    classes = classes_of(able)
    formulation = Formulation(classes, Cells(room, closest_cell_level(classes)), shares, sub_layers)
    formulation.state()
    alone = Deciding(formulation, room, able, shares, optimise, Effort(0.0, 60.0, 0, exact=True), None).until_placed(())
    return [
        f"{name}: reached {mine}, by the program {programs}, best {theirs}, {layer.status}"
        for name, mine, programs, theirs, layer in zip(
            names,
            layer_values(answer.starts, sub_layers, shares),
            layer_values(alone.starts, sub_layers, shares),
            best,
            answer.certificate.layers,
            strict=True,
        )
        if not (same(mine, theirs) and same(programs, theirs) and layer.status == "proven")
    ]


def exactly(policy: Policy) -> Policy:
    """The policy, in exact mode."""
    scheduling = msgspec.structs.replace(policy.scheduling, solver=SolverLimits("exact"))
    return msgspec.structs.replace(policy, scheduling=scheduling)


def certified(mode: SolverMode, *mig: MigGeometry) -> Certificate:
    """Of a round in which a gang of 4 GPUs fills one of two nodes, so that another can't have a task on each of them."""
    apart = job("apart", "q", 2, 1, submitted=1)
    topology = msgspec.structs.replace(apart.spec.topology, spread=Spread("node", 1))
    apart = msgspec.structs.replace(apart, spec=msgspec.structs.replace(apart.spec, topology=topology))
    world = snapshot_of(Instant(9), [node("n1", 4), node("n2", 2)], [job("whole", "q", 1, 4), apart])
    policy = policy_of((Queue(QueueName("q")),), (), SchedulingPolicy(solver=SolverLimits(mode)), mig=mig)
    return solve(world, policy, optimise).certificate


def test_what_finds_no_place_is_forbidden_until_the_rest_is_proven_best() -> None:
    certificate = certified("exact")
    assert (certificate.mode, certificate.cuts) == ("exact", 1)
    assert {layer.status for layer in certificate.layers} == {"proven"}
    assert certificate.entitled_unproven == 0


def test_where_gpus_may_be_partitioned_nothing_is_forbidden_and_nothing_proven() -> None:
    certificate = certified("exact", MigGeometry("parts", "h100", "free", "H100-80GB"))
    assert (certificate.mode, certificate.cuts) == ("exact", 0)
    assert certificate.layers[0].status == "unproven"


def test_a_production_round_says_by_how_much_entitled_work_may_fall_short() -> None:
    certificate = certified("production")
    assert (certificate.mode, certificate.cuts) == ("production", 0)
    assert certificate.layers[0].status == "unproven"
    assert certificate.entitled_unproven == pytest.approx(certificate.layers[0].bound - certificate.layers[0].value)


def test_an_exact_round_that_meets_its_time_limit_says_so() -> None:
    def overdue(program: Program, start: Floats, effort: Effort) -> Solution | None:
        assert effort.exact
        return Solution(start, tuple(Reached(o.value(start), 99.0) for o in program.objectives), "late", True)

    policy = policy_of((Queue(QueueName("q")),), (), SchedulingPolicy(solver=SolverLimits("exact")))
    pending = [job("one", "q", 1, 2), job("two", "q", 1, 1, submitted=1)]
    certificate = solve(snapshot_of(Instant(9), [node("n1", 2)], pending), policy, overdue).certificate
    assert certificate.cut_by_clock
    assert "unproven" in {layer.status for layer in certificate.layers}
