"""How far apart a gang may be costs it something in the layer of fit alone, and the checker counts that again."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from solver.checker.check import violations
from solver.milp.certificate import better
from solver.milp.highs import optimise
from solver.milp.optimiser import Effort, Program, Reached, Solution
from solver.model.arrays import Floats
from solver.model.cluster import Level, Links, Node
from solver.model.quantities import Instant
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, QueueName, TopologyRequest
from solver.placement.starts import FIT
from solver.plan.plan import Bind, LayerResult, Plan
from solver.policy.policy import Policy, Queue, policy_of
from solver.round.solve import solve
from tests.drawn import counted
from tests.solver.brute_force import best_values
from tests.solver.round.test_against_brute_force import both, world_of
from tests.solver.worlds import job, node, policies, snapshots

POLICY = policy_of((Queue(QueueName("q")),))
NODES = [node(f"n{number}", 8, rack=f"r{number // 2}", block=f"b{number // 4}") for number in range(8)]
EXAMPLES = counted(400)


NOTHING: tuple[dict[str, object], ...] = ({"preferred": None, "communication": "normal"},)
WISHES: tuple[dict[str, object], ...] = (
    {"preferred": ("island", "rack"), "communication": "normal"},
    {"preferred": None, "communication": "bound"},
    {"preferred": "rack", "communication": "bound"},
)


def with_wishes(snapshot: Snapshot, wishes: tuple[dict[str, object], ...]) -> Snapshot:
    """The world, in which jobs wish these in turn."""

    def changed(known: Job, wish: dict[str, object]) -> Job:
        topology = msgspec.structs.replace(known.spec.topology, **wish)
        return msgspec.structs.replace(known, spec=msgspec.structs.replace(known.spec, topology=topology))

    jobs = (changed(known, wishes[place % len(wishes)]) for place, known in enumerate(snapshot.jobs))
    return msgspec.structs.replace(snapshot, jobs=tuple(jobs))


@pytest.mark.thorough
def test_wishes_take_nothing_from_the_layers_above() -> None:
    counts = {"rounds": 0, "as good": 0, "with wishes": 0}

    @seed(2026)
    @settings(max_examples=EXAMPLES, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(snapshots(nodes_max=4, jobs_max=3, held_one_in=8), policies())
    def compare(snapshot: Snapshot, policy: Policy) -> None:
        answer, _, reached = both(with_wishes(snapshot, WISHES), policy)
        best = best_values(*world_of(with_wishes(snapshot, NOTHING), policy))
        assert not better(reached[:-2], best[:-2])
        counts["rounds"] += 1
        counts["as good"] += not better(best[:-2], reached[:-2])
        specs = [start.candidate.job.spec for start in answer.starts]
        counts["with wishes"] += any(spec.effective_topology.levels for spec in specs)

    compare()
    assert counts["with wishes"] >= EXAMPLES // 13
    assert counts["as good"] >= 0.985 * counts["rounds"]


@pytest.mark.parametrize(
    ("hosts", "preferred", "communication", "strain"),
    [
        (("n0", "n0"), ("island", "rack"), "normal", 0.0),
        (("n0", "n1"), ("island", "rack"), "normal", 1.0),
        (("n0", "n2"), ("island", "rack"), "normal", 2.0),
        (("n0", "n2"), "island", "normal", 1.0),
        (("n0", "n1"), None, "bound", 900 / 100 - 1),
        (("n0", "n2"), None, "bound", 900 / 50 - 1),
        (("n0", "n4"), None, "bound", 900 / 25 - 1),
        (("n0", "n1"), "island", "bound", 900 / 100),
    ],
)
def test_the_strain_worked_out_by_hand(
    hosts: tuple[str, str], preferred: Level | tuple[Level, ...] | None, communication: str, strain: float
) -> None:
    """Two tasks of four GPUs; elsewhere nothing is free."""
    links = Links(rack=100, block=50, pool=25)
    nodes = [closed(msgspec.structs.replace(known, links=links), hosts) for known in NODES]
    topology = TopologyRequest(preferred=preferred, communication=communication)  # type: ignore[arg-type]
    made = job("gang", "q", 2, 4 if hosts[0] == hosts[1] else 8)
    gang = msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, topology=topology))
    snapshot = snapshot_of(Instant(0), nodes, [gang])
    for optimiser in (None, optimise):
        plan = solve(snapshot, POLICY, optimiser)
        assert [len(step.tasks) for step in plan.steps if isinstance(step, Bind)] == [2]
        assert fit_of(plan).value == pytest.approx(-strain * gang.spec.gpus / 1000)
        assert violations(snapshot, POLICY, plan) == ()
        claimed = with_fit(plan, fit_of(plan).value - 1)
        assert [found.rule for found in violations(snapshot, POLICY, claimed)] == ["fit"]


@pytest.mark.parametrize(
    "topology",
    [TopologyRequest(required="rack"), TopologyRequest(preferred="rack"), TopologyRequest(preferred="island")],
)
def test_a_gang_without_gpus_that_keeps_together_is_part_of_the_program(topology: TopologyRequest) -> None:
    made = job("helpers", "q", 2, 0)
    helpers = msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, topology=topology))
    gangs = [job(f"gang-{number}", "q", 5, 8) for number in range(2)]
    asked: list[tuple[Program, Solution | None]] = []

    def optimiser(program: Program, start: Floats, effort: Effort) -> Solution | None:
        solution = optimise(program, start, effort)
        if program.objectives[-2].name == FIT:
            asked.append((program, solution))
        return solution

    solve(snapshot_of(Instant(0), NODES, [helpers, *gangs]), POLICY, optimiser)
    ((program, solution),) = asked
    assert solution is not None, "what greedy starts does not satisfy the program"
    reached = {layer.name: known for layer, known in zip(program.objectives, solution.reached, strict=True)}
    assert reached["leftover.standard.0"].value == pytest.approx(40 * 1.07 + 0.001, rel=1e-4)
    assert reached["fit"] == Reached(0.0, 0.0)


def closed(known: Node, but: tuple[str, ...]) -> Node:
    """The node, cordoned unless it is named."""
    return msgspec.structs.replace(known, cordoned=known.name not in but)


def fit_of(plan: Plan) -> LayerResult:
    """The layer of fit."""
    return next(layer for layer in plan.certificate.layers if layer.name == "fit")


def with_fit(plan: Plan, value: float) -> Plan:
    """The plan, claiming another fit."""
    layers = tuple(
        msgspec.structs.replace(layer, value=value) if layer.name == "fit" else layer
        for layer in plan.certificate.layers
    )
    return msgspec.structs.replace(plan, certificate=msgspec.structs.replace(plan.certificate, layers=layers))
