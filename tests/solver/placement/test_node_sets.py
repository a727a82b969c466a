"""Tasks that may be on some nodes only: never placed elsewhere, by nobody; and the program still finds and proves the best."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from solver.checker.check import violations
from solver.milp import cell_parts as split
from solver.milp.cells import Cells
from solver.milp.certificate import better, same
from solver.milp.classes import classes_of
from solver.milp.formulation import Formulation
from solver.milp.highs import optimise
from solver.milp.start_decision import begin, cell_level
from solver.model.cluster import DeviceId, NodeName
from solver.model.inflight import InFlight, Intent, Reservation
from solver.model.node_sets import NodeSet
from solver.model.quantities import Duration, Instant
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName, QueueName, TaskPlacement
from solver.placement.starts import layer_values
from solver.plan.plan import Bind, Evict, Grow, Inadmissible, Nominate, Plan, Reserve, Starts, Waits, Withdraw
from solver.plan.reasons import CapacityReason
from solver.plan.refusals import NeverFits
from solver.policy.policy import Policy, Queue, Reservations, SchedulingPolicy, policy_of
from solver.round.solve import solve
from tests.drawn import worlds
from tests.solver.aftermath import applied
from tests.solver.backfill.reserved_worlds import reserved_worlds
from tests.solver.brute_force import best_values
from tests.solver.milp.test_cut_loop import exactly, mismatches
from tests.solver.round.test_against_brute_force import without_greedy, world_of
from tests.solver.round.test_mig import partitioned
from tests.solver.worlds import (
    HOUR_MS,
    job,
    node,
    policies,
    quota_of,
    sharing_policies,
    snapshots,
    with_fractions,
    with_sets,
)

OPEN = policy_of((Queue(QueueName("q"), quota=(quota_of("H100"),)),))
"""One queue without limits: who starts is a matter of room alone."""


def limited(known: Job, nodes: str) -> Job:
    """The job, whose groups may be on one set of nodes only."""
    groups = tuple(msgspec.structs.replace(group, nodes=nodes) for group in known.spec.task_groups)
    return msgspec.structs.replace(known, spec=msgspec.structs.replace(known.spec, task_groups=groups))


def sets(**named: str) -> tuple[NodeSet, ...]:
    """Sets by name, each with its nodes separated by spaces."""
    return tuple(NodeSet(name, tuple(map(NodeName, nodes.split()))) for name, nodes in named.items())


@st.composite
def crowded(draw: st.DrawFn) -> Snapshot:
    """Two to four nodes of two GPUs, three sets of them, and more gangs than fit, most of them limited to one of the sets."""
    chance: random.Random = draw(st.randoms(use_true_random=False))
    nodes = [node(f"n{place}", 2, rack=f"r{place // 2}", block="b") for place in range(chance.randint(2, 4))]
    node_sets = [
        NodeSet(name, tuple(one.name for one in chance.sample(nodes, chance.randint(1, len(nodes))))) for name in "abc"
    ]
    pending = [
        limited(
            job(
                f"j{number}",
                "q",
                chance.randint(1, 2),
                chance.choice([1, 1, 2]),
                required=chance.choice([None, None, None, "rack", "block"]),
            ),
            chance.choice(["", *"abc"]),
        )
        for number in range(chance.randint(3, 5))
    ]
    return snapshot_of(Instant(0), nodes, pending, node_sets=node_sets)


def proven_of(rounds: int) -> Counter[str]:
    """Hold so many rounds of crowded worlds and try everything; fails where one is not the best, or proves what is not so."""
    tally = Counter[str]()

    @seed(2026)
    @settings(max_examples=rounds, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(crowded())
    def compare(snapshot: Snapshot) -> None:
        candidates, room, shares, sub_layers = world_of(snapshot, OPEN)
        answer = begin(candidates, room, shares, OPEN.scheduling.solver, optimise).answer()
        best, reached = (
            best_values(candidates, room, shares, sub_layers),
            layer_values(answer.starts, sub_layers, shares),
        )
        proven = all(layer.status == "proven" for layer in answer.certificate.layers)
        assert not better(reached, best), "the answer is better than possible: somebody is where it may not be"
        assert not (proven and better(best, reached)), "the certificate proves a value that is not the best"
        assert all(
            layer.bound > value or same(layer.bound, value)
            for layer, value in zip(answer.certificate.layers, reached, strict=True)
        )
        tally["rounds"] += 1
        tally["best"] += not better(best, reached)
        tally["best by program"] += not better(best, without_greedy(snapshot, OPEN))
        tally["proven"] += proven
        tally["decided by program"] += answer.certificate.stage == "mip"

    compare()
    return tally


@pytest.mark.thorough
def test_where_nodes_are_scarce_the_program_finds_and_proves_the_best() -> None:
    found = proven_of(200)
    assert found["decided by program"] >= 40, "greedy is hardly ever beaten: these worlds do not test the program"
    assert found["best"] >= 0.99 * found["rounds"]
    assert found["best by program"] >= 0.98 * found["rounds"]
    assert found["proven"] >= 0.98 * found["rounds"]


@pytest.mark.thorough
def test_cells_of_too_many_parts_are_bounded_and_never_wrongly_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split, "PARTS_MAX", 2)
    found = proven_of(80)
    assert found["best"] >= 0.98 * found["rounds"]


@pytest.mark.thorough
def test_exact_rounds_are_exact_among_sets_too() -> None:
    @seed(2028)
    @settings(max_examples=60, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(crowded())
    def compare(snapshot: Snapshot) -> None:
        assert mismatches(snapshot, exactly(OPEN)) == []

    compare()


def test_sizes_and_sets_together_are_counted_node_by_node() -> None:
    """Either the task of two GPUs starts on one of the nodes, or both tasks of one do: no bound says that all can."""
    nodes = [node("n1", 2), node("n2", 2)]
    pending = [
        job("wide", "q", 1, 2),
        limited(job("left", "q", 1, 1, submitted=1), "one"),
        limited(job("right", "q", 1, 1, submitted=2), "two"),
    ]
    certificate = solve(
        snapshot_of(Instant(9), nodes, pending, node_sets=sets(one="n1", two="n2")), OPEN, optimise
    ).certificate
    assert {layer.status for layer in certificate.layers} == {"proven"}


def size_of_program(world: Snapshot) -> tuple[int, int, int]:
    """Columns, rows, and how many cells are split."""
    candidates, room, shares, sub_layers = world_of(world, OPEN)
    classes = classes_of(candidates)
    formulation = Formulation(classes, Cells(room, cell_level(classes)), shares, sub_layers)
    formulation.state()
    program = formulation.builder.build()
    return len(program.lower), len(program.row_lower), len(formulation.cells.parts)


def test_a_set_that_splits_no_cell_costs_no_column_and_no_row() -> None:
    nodes = [node(f"h{place}", 4, block="b1") for place in range(3)]
    nodes += [node(f"a{place}", 4, block="b2") for place in range(3)]
    free = [job(f"j{number}", "q", 2, 2, required="block") for number in range(9)]
    plain = size_of_program(snapshot_of(Instant(0), nodes, free))
    named = sets(first="h0 h1 h2", half="h0")
    kept = [limited(known, "first") if place < 4 else known for place, known in enumerate(free)]
    assert size_of_program(snapshot_of(Instant(0), nodes, free, node_sets=named)) == plain
    columns, _, parts = size_of_program(snapshot_of(Instant(0), nodes, kept, node_sets=named))
    assert (columns <= plain[0] + 3, parts) == (True, 0), "a class more, with a way and its flow into the one block"
    some = [limited(known, "half") if place < 4 else known for place, known in enumerate(free)]
    columns, _, parts = size_of_program(snapshot_of(Instant(0), nodes, some, node_sets=named))
    assert (columns > plain[0] + 3, parts) == (True, 1)


def outside(world: Snapshot, plan: Plan) -> Iterator[str]:
    """The tasks of a plan that are not where they may be."""
    allowed = {known.name: known.nodes for known in world.node_sets}
    groups = {(known.name, group.name): group.nodes for known in world.jobs for group in known.spec.task_groups}
    for step in [step for step in plan.steps if isinstance(step, Bind | Nominate | Grow | Reserve)]:
        for task in step.tasks:
            named = groups.get((step.job, task.group))
            if named and task.node not in allowed[named]:
                yield f"{step.job} on {task.node}"


def judged(world: Snapshot, policy: Policy) -> None:
    for optimiser in (None, optimise):
        plan = solve(world, policy, optimiser)
        assert list(outside(world, plan)) == []
        assert violations(world, policy, plan) == ()


@worlds(100)
@given(snapshots(elastic=True, close=True).flatmap(with_sets), policies() | policies(keeping=True))
def test_no_plan_uses_a_node_outside(snapshot: Snapshot, policy: Policy) -> None:
    judged(snapshot, policy)
    after = applied(snapshot, solve(snapshot, policy, None))
    judged(after, policy)


@worlds(60)
@given(reserved_worlds(), st.data())
def test_nor_do_reservations_and_promises_of_earlier_rounds(
    known: tuple[Snapshot, Policy], data: st.DataObject
) -> None:
    """Here sets come after the promises: what was promised outside of them is taken back, and what is kept moves."""
    world, policy = known
    judged(data.draw(with_sets(world)), policy)


@worlds(60)
@given(snapshots(nodes_max=4).flatmap(with_fractions).flatmap(with_sets), policies().flatmap(sharing_policies))
def test_nor_do_parts_of_gpus(snapshot: Snapshot, policy: Policy) -> None:
    judged(snapshot, policy)


@worlds(40)
@given(partitioned(nodes_max=2, jobs_max=4), st.data())
def test_nor_do_mig_instances(world: tuple[Snapshot, Policy], data: st.DataObject) -> None:
    judged(data.draw(with_sets(world[0])), world[1])


NODES = [node(f"n{number}", 4) for number in (1, 2, 3)]
NOW = Instant(10 * HOUR_MS)


def running(name: str, queue: str, gpus: int, on: str, hours: int | None = None) -> Job:
    devices = tuple(DeviceId(f"{on}/{index}") for index in range(gpus))
    limit = None if hours is None else Duration(hours * HOUR_MS)
    return msgspec.structs.replace(
        job(name, queue, 1, gpus),
        phase="running",
        attempt=1,
        started_at=NOW,
        time_limit=limit,
        placement=(TaskPlacement("worker", 0, NodeName(on), devices),),
    )


def placed(plan: Plan) -> dict[str, list[str]]:
    return {step.job: [task.node for task in step.tasks] for step in plan.steps if isinstance(step, Bind | Nominate)}


def reasons(plan: Plan, name: str) -> Iterable[object]:
    (verdict,) = (known for known in plan.verdicts if known.job == name)
    return verdict.reasons if isinstance(verdict, Waits | Inadmissible) else ()


def test_reasons_say_to_how_many_nodes_a_gang_is_limited() -> None:
    named = sets(few="n1 n2", none="")
    pending = [
        limited(job("waits", "q", 2, 4), "few"),
        limited(job("never", "q", 3, 4), "few"),
        limited(job("nowhere", "q", 1, 1), "none"),
    ]
    world = snapshot_of(NOW, NODES, [running("there", "q", 4, "n1"), *pending], node_sets=named)
    plan = solve(world, OPEN, optimise)
    (lacks,), (never,), (nowhere,) = (reasons(plan, name) for name in ("waits", "never", "nowhere"))
    assert isinstance(lacks, CapacityReason)
    assert isinstance(never, NeverFits)
    assert isinstance(nowhere, NeverFits)
    assert (lacks.node_set, lacks.nodes_allowed, lacks.free.number) == ("few", 2, 4)
    assert (never.node_set, never.nodes_allowed, never.tasks_that_fit) == ("few", 2, 2)
    assert (nowhere.nodes_allowed, nowhere.largest_task) == (0, 0)
    assert str(never).endswith("has room for 2 such tasks on the 2 nodes that it may be on (few)")


def test_only_the_types_of_its_nodes_are_tried_and_told() -> None:
    """Of twenty types the one that its node has comes last by name: more than are tried of all combinations."""
    nodes = [node(f"n{number:02}", 4, f"T{number:02}") for number in range(20)]
    pending = [limited(job("fits", "q", 1, 4), "last"), limited(job("never", "q", 2, 4), "last")]
    plan = solve(snapshot_of(NOW, nodes, pending, node_sets=sets(last="n19")), OPEN, optimise)
    assert placed(plan) == {"fits": ["n19"]}
    (never,) = reasons(plan, "never")
    assert isinstance(never, NeverFits)
    assert (never.gpu_type, never.nodes_allowed) == ("T19", 1)


def test_a_limited_gang_starts_when_its_own_node_is_free() -> None:
    there = [running("soon", "q", 4, "n1", 1), running("late", "q", 4, "n2", 5), running("later", "q", 4, "n3", 6)]
    world = snapshot_of(NOW, NODES, [*there, limited(job("waits", "q", 1, 4), "two")], node_sets=sets(two="n2"))
    scheduling = SchedulingPolicy(reservations=Reservations(2))
    plan = solve(world, msgspec.structs.replace(OPEN, scheduling=scheduling), optimise)
    (kept,) = (step for step in plan.steps if isinstance(step, Reserve))
    assert (kept.tasks[0].node, kept.start) == ("n2", NOW.after(Duration(5 * HOUR_MS)))
    (verdict,) = (known for known in plan.verdicts if known.job == "waits")
    assert isinstance(verdict, Waits)
    assert getattr(verdict.estimate, "at", None) == kept.start


def test_what_is_reserved_outside_moves_and_what_is_promised_there_is_taken_back() -> None:
    tasks = (TaskPlacement("worker", 0, NodeName("n1"), tuple(DeviceId(f"n1/{index}") for index in range(4))),)
    there = [running("soon", "q", 4, "n1", 1), running("late", "q", 4, "n2", 5), running("later", "q", 4, "n3", 6)]
    waits, named = limited(job("waits", "q", 1, 4), "two"), sets(two="n2")
    held = InFlight(reservations=(Reservation(JobName("waits"), tasks, NOW.after(Duration(HOUR_MS)), None),))
    policy = msgspec.structs.replace(OPEN, scheduling=SchedulingPolicy(reservations=Reservations(2)))
    plan = solve(snapshot_of(NOW, NODES, [*there, waits], held, named), policy, optimise)
    assert [step.tasks[0].node for step in plan.steps if isinstance(step, Reserve)] == ["n2"]
    promise = Intent("nominate", JobName("waits"), 1, NOW, NOW.after(Duration(HOUR_MS)), tasks)
    promised = InFlight(intents=(promise,))
    world = snapshot_of(NOW, NODES, [*there, waits], promised, named)
    plan = solve(world, OPEN, optimise)
    assert [step.job for step in plan.steps if isinstance(step, Withdraw)] == ["waits"]
    assert violations(world, OPEN, plan) == ()


def test_who_moves_goes_where_it_may_be() -> None:
    """Three nodes are half full; what leaves one of them for the preemptor may be on n3 only, and so n2 is not cleared for it."""
    named = sets(third="n2 n3", first="n1 n2")
    there = [running("a", "q", 2, "n1"), limited(running("b", "q", 2, "n2"), "third"), running("c", "q", 2, "n3")]
    there = [msgspec.structs.replace(known, started_at=Instant(0)) for known in there]
    world = snapshot_of(NOW, NODES, [*there, limited(job("whole", "q", 1, 4), "first")], node_sets=named)
    plan = solve(world, OPEN, optimise)
    assert violations(world, OPEN, plan) == ()
    where = placed(plan)
    assert where["whole"][0] in ("n1", "n2")
    assert list(outside(world, plan)) == []
    assert any(isinstance(step, Evict) and step.means == "move" for step in plan.steps)


def test_the_checker_finds_a_task_that_is_moved_outside() -> None:
    world = snapshot_of(NOW, NODES, [limited(job("one", "q", 1, 4), "two")], node_sets=sets(two="n2"))
    good = solve(world, OPEN, optimise)
    (bind,) = (step for step in good.steps if isinstance(step, Bind))
    devices = tuple(DeviceId(f"n3/{index}") for index in range(4))
    moved = msgspec.structs.replace(bind.tasks[0], node=NodeName("n3"), devices=devices)
    bad = msgspec.structs.replace(good, steps=(msgspec.structs.replace(bind, tasks=(moved,)),))
    assert violations(world, OPEN, good) == ()
    assert [(found.rule, "n3" in found.problem) for found in violations(world, OPEN, bad)] == [("S2", True)]
    assert any(isinstance(verdict, Starts) for verdict in good.verdicts)


def test_groups_of_a_gang_may_each_be_somewhere_else() -> None:
    one = limited(job("gang", "q", 1, 2), "one").spec.task_groups[0]
    other = msgspec.structs.replace(one, name="driver", nodes="two", shape=msgspec.structs.replace(one.shape, gpus=0))
    gang = job("gang", "q", 1, 2)
    gang = msgspec.structs.replace(gang, spec=msgspec.structs.replace(gang.spec, task_groups=(one, other)))
    world = snapshot_of(NOW, NODES, [gang], node_sets=sets(one="n3", two="n1"))
    assert placed(solve(world, OPEN, optimise)) == {"gang": ["n3", "n1"]}


@pytest.mark.parametrize("few", [0, 1])
def test_a_group_with_few_nodes_is_not_left_without_one_by_a_like_group_of_its_gang(few: int) -> None:
    """Which of both is named first is chance, and neither may make the gang inadmissible."""
    known = job("pair", "q", 1, 2)
    (group,) = known.spec.task_groups
    groups = tuple(
        msgspec.structs.replace(group, name=f"g{number}", nodes="one" if number == few else "") for number in range(2)
    )
    pair = msgspec.structs.replace(known, spec=msgspec.structs.replace(known.spec, task_groups=groups))
    nodes = [node(name, 2) for name in ("n1", "n2")]
    for name in ("n1", "n2"):
        snapshot = snapshot_of(Instant(0), nodes, [pair], node_sets=sets(one=name))
        (verdict,) = solve(snapshot, OPEN, optimise).verdicts
        assert isinstance(verdict, Starts), verdict
