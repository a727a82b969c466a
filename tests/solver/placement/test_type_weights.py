"""Jobs that name no GPU type get the lightest that has room: weights change nothing above their layer, and are counted again."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from solver.checker.check import violations
from solver.milp.certificate import better, same
from solver.milp.highs import optimise
from solver.model.cluster import DeviceId, GpuType, NodeName
from solver.model.quantities import Instant, MilliGpu
from solver.model.shape import Shape
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, QueueName, TaskGroup, TaskPlacement
from solver.plan.plan import Bind, LayerResult, Plan
from solver.policy.division import SharingPolicy
from solver.policy.policy import Policy, Queue, policy_of
from solver.policy.type_weights import GpuTypeWeight
from solver.round.solve import solve
from tests.drawn import counted, worlds
from tests.solver.brute_force import best_values
from tests.solver.milp.test_cut_loop import exactly, mismatches
from tests.solver.round.test_against_brute_force import both, world_of
from tests.solver.worlds import TYPES, job, node, policies, sharing_policies, snapshots, with_fractions

many = worlds(100)


def weighing(policy: Policy, *weights: tuple[str, float]) -> Policy:
    """The policy, with these weights."""
    stated = tuple(GpuTypeWeight(GpuType(gpu_type), weight) for gpu_type, weight in weights)
    scheduling = msgspec.structs.replace(policy.scheduling, gpu_types=stated)
    return policy_of(policy.queues, policy.priority_classes, scheduling, policy.sharing)


@st.composite
def weighed(draw: st.DrawFn, policy: Policy) -> Policy:
    """The policy, in which one of the two types is heavier."""
    gpu_type, weight = draw(st.sampled_from(TYPES)), draw(st.sampled_from([0.3, 1.5, 4.0]))
    return weighing(policy, (gpu_type, weight))


def indifferent(snapshot: Snapshot) -> Snapshot:
    """The world, in which two of three waiting jobs name no type."""

    def changed(known: Job) -> Job:
        groups = tuple(
            msgspec.structs.replace(group, shape=msgspec.structs.replace(group.shape, gpu_types=()))
            for group in known.spec.task_groups
        )
        return msgspec.structs.replace(known, spec=msgspec.structs.replace(known.spec, task_groups=groups))

    jobs = (
        changed(known) if known.phase == "pending" and place % 3 else known for place, known in enumerate(snapshot.jobs)
    )
    return msgspec.structs.replace(snapshot, jobs=tuple(jobs))


WORLDS = snapshots(nodes_max=4, jobs_max=3, held_one_in=8).map(indifferent)
ELASTIC = snapshots(nodes_max=3, jobs_max=3, elastic=True, held_one_in=8).map(indifferent)
POLICIES = policies().flatmap(weighed)


@dataclass
class Tally:
    """Rounds of which kind there were."""

    rounds: int = 0
    as_good: int = 0
    heavy: int = 0
    chosen: int = 0


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("about", "examples"), [("plain", counted(300)), ("elastic", counted(200))], ids=["plain", "elastic"]
)
def test_exact_rounds_reach_the_lightest_that_trying_everything_finds(about: str, examples: int) -> None:
    found: list[str] = []
    tally = Tally()

    @seed(2028)
    @settings(max_examples=examples, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(WORLDS if about == "plain" else ELASTIC, POLICIES)
    def compare(snapshot: Snapshot, policy: Policy) -> None:
        tally.rounds += 1
        found.extend(f"round {tally.rounds}: {line}" for line in mismatches(snapshot, exactly(policy)))

    compare()
    assert tally.rounds == examples
    assert not found, "\n".join(found)


@pytest.mark.thorough
def test_weights_take_nothing_from_the_layers_above() -> None:
    tally, rounds = Tally(), counted(300)

    @seed(2026)
    @settings(max_examples=rounds, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(WORLDS, POLICIES)
    def compare(snapshot: Snapshot, policy: Policy) -> None:
        answer, best, reached = both(snapshot, policy)
        bare = best_values(*world_of(snapshot, weighing(policy)))
        assert best[:-1] == bare[:-1]
        assert not better(reached, best), "the answer is better than possible: it breaks a rule"
        tally.rounds += 1
        tally.as_good += not better(best, reached)
        tally.heavy += any(start.excess_weight for start in answer.starts)
        tally.chosen += any(
            not start.excess_weight and len({option.gpu_types for option in start.candidate.options}) > 1
            for start in answer.starts
        )

    compare()
    assert tally.heavy >= rounds // 15, "hardly anybody had to take a heavier type"
    assert tally.chosen >= rounds // 10, "hardly anybody could choose the lightest"
    assert tally.as_good >= 0.985 * tally.rounds


def test_so_do_rounds_with_parts_of_gpus() -> None:
    tally = Tally()

    @seed(2026)
    @settings(max_examples=150, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(
        snapshots(nodes_max=3, jobs_max=3, held_one_in=8).map(indifferent).flatmap(with_fractions),
        policies().flatmap(sharing_policies).flatmap(weighed),
    )
    def compare(snapshot: Snapshot, policy: Policy) -> None:
        _, best, reached = both(snapshot, policy)
        assert not better(reached, best)
        tally.rounds += 1
        tally.as_good += not better(best, reached)

    compare()
    assert tally.as_good >= 0.985 * tally.rounds


@many
@given(snapshots().map(indifferent), POLICIES)
def test_the_checker_counts_the_same(snapshot: Snapshot, policy: Policy) -> None:
    for optimiser in (None, optimise):
        plan = solve(snapshot, policy, optimiser)
        assert violations(snapshot, policy, plan) == ()
        claimed = with_weight(plan, weight_of(plan).value - 1)
        assert [found.rule for found in violations(snapshot, policy, claimed)] == ["fit"]


@pytest.mark.parametrize(
    ("why", "wanted", "weights", "excess"),
    [
        ("all on the lighter type", job("a", "q", 1, 4), (("H100", 4.0),), 0.0),
        ("four more than fit there", job("a", "q", 2, 4), (("H100", 4.0),), 8 * 3.0),
        ("a type that is not there is not the lightest", job("a", "q", 2, 4), (("H100", 4.0), ("L4", 0.1)), 8 * 3.0),
        ("who names a type takes it as it is", job("a", "q", 1, 4, types=["H100"]), (("H100", 4.0),), 0.0),
        ("the other is lighter", job("a", "q", 2, 4), (("A100", 4.0),), 0.0),
    ],
)
def test_the_excess_worked_out_by_hand(
    why: str, wanted: Job, weights: tuple[tuple[str, float], ...], excess: float
) -> None:
    """Two nodes of 4 H100, one of 4 A100."""
    snapshot = snapshot_of(Instant(0), [node("h1", 4), node("h2", 4), node("a1", 4, "A100")], [wanted])
    policy = weighing(policy_of((Queue(QueueName("q")),)), *weights)
    for optimiser in (None, optimise):
        plan = solve(snapshot, policy, optimiser)
        assert weight_of(plan).value == pytest.approx(-excess), why
        assert violations(snapshot, policy, plan) == ()


def test_what_a_gang_grows_by_weighs_as_well() -> None:
    """A gang of one to three tasks fits the light type with one task, and grows on the heavy one."""
    group = TaskGroup("worker", 3, Shape(4), min_replicas=1)
    made = job("a", "q", 1, 4)
    gang = msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, task_groups=(group,)))
    nodes = [node("h1", 4), node("h2", 4), node("h3", 4), node("a1", 4, "A100")]
    policy = weighing(policy_of((Queue(QueueName("q")),)), ("H100", 2.5))
    plan = solve(snapshot_of(Instant(0), nodes, [gang]), policy, optimise)
    (step,) = (step for step in plan.steps if isinstance(step, Bind))
    assert {task.node for task in step.tasks} == {"h1", "h2", "h3"}
    assert same(weight_of(plan).value, -12 * 1.5)


def test_parts_of_gpus_weigh_as_parts() -> None:
    half = wanting(job("a", "q", 1, 0), Shape(gpu_fraction=MilliGpu(500)))
    whole = job("b", "q", 1, 2, submitted=-1)
    nodes = [node("h1", 1), node("a1", 2, "A100")]
    sharing = SharingPolicy("parts", ("h100", "a100"), "mps")
    policy = policy_of((Queue(QueueName("q")),), sharing=(sharing,))
    plan = solve(snapshot_of(Instant(0), nodes, [half, whole]), weighing(policy, ("H100", 3.0)), optimise)
    assert same(weight_of(plan).value, -0.5 * 2.0)


@pytest.mark.parametrize(("weights", "device"), [((), "h1/0"), ((("H100", 3.0),), "a1/0")])
def test_weights_come_before_what_is_left_of_the_rest(weights: tuple[tuple[str, float], ...], device: str) -> None:
    """Half a GPU fits beside another half, which leaves whole GPUs to those who want them; but not if that is heavier."""
    half, whole = Shape(gpu_fraction=MilliGpu(500)), Shape(1)
    pending, beside = wanting(job("a", "q", 1, 0), half), running(job("b", "q", 1, 0), half, "h1/0")
    others = running(job("c", "q", 1, 0), whole, "h1/1")
    nodes = [node("h1", 2), node("a1", 1, "A100")]
    policy = policy_of((Queue(QueueName("q")),), sharing=(SharingPolicy("parts", ("h100", "a100"), "mps"),))
    for optimiser in (None, optimise):
        plan = solve(snapshot_of(Instant(0), nodes, [pending, beside, others]), weighing(policy, *weights), optimiser)
        assert [step.tasks[0].devices for step in plan.steps if isinstance(step, Bind)] == [(device,)]


def wanting(known: Job, shape: Shape) -> Job:
    """The job, with one task of a shape."""
    spec = msgspec.structs.replace(known.spec, task_groups=(TaskGroup("worker", 1, shape),))
    return msgspec.structs.replace(known, spec=spec)


def running(known: Job, shape: Shape, device: str) -> Job:
    """The same on a device, or on half of it."""
    share = shape.gpu_fraction
    held = TaskPlacement("worker", 0, NodeName(device.partition("/")[0]), (DeviceId(device),), share)
    return msgspec.structs.replace(
        wanting(known, shape), phase="running", attempt=1, started_at=Instant(0), placement=(held,)
    )


def weight_of(plan: Plan) -> LayerResult:
    """The layer of weights."""
    return next(layer for layer in plan.certificate.layers if layer.name == "type-weight")


def with_weight(plan: Plan, value: float) -> Plan:
    """The plan, claiming another weight."""
    layers = tuple(
        msgspec.structs.replace(layer, value=value) if layer.name == "type-weight" else layer
        for layer in plan.certificate.layers
    )
    return msgspec.structs.replace(plan, certificate=msgspec.structs.replace(plan.certificate, layers=layers))
