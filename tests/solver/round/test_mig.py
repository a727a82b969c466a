"""MIG instances: every geometry is one that the driver takes, nothing in use is touched, and the round is nearly the best."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from solver.capacity.nominal_nodes import nominal_nodes
from solver.capacity.partitioning import MIG_CHANGES, pool_rules
from solver.checker.check import violations
from solver.milp.certificate import better
from solver.milp.highs import optimise
from solver.model.cluster import DeviceId, Gpu, GpuType, Level, MigInstance, Node
from solver.model.inflight import Counter as Counted
from solver.model.inflight import InFlight
from solver.model.mig import PlacedInstance, geometries, is_valid, mig_model
from solver.model.mig_layout import find_profile, model_of_type, profiles_of, realisations
from solver.model.quantities import Duration, Instant, MilliGpu
from solver.model.round_cache import RoundCache
from solver.model.shape import Shape
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, MigSlot, QueueName, TaskGroup, TaskPlacement, TopologyRequest
from solver.plan.plan import Bind, Plan, Repartition
from solver.policy.division import MigChanges, MigGeometry
from solver.policy.policy import Policy, Queue, policy_of
from solver.round.admission import Emptied, Gate
from solver.round.solve import solve
from solver.simulation.replay import Replay
from solver.simulation.trace import TraceJob
from tests.drawn import counted, worlds
from tests.solver.aftermath import applied
from tests.solver.milp.test_program import EFFORT, formulated
from tests.solver.round.test_against_brute_force import both
from tests.solver.worlds import job, node

MODELS = {"H100": "H100-80GB", "A30": "A30-24GB"}
PROFILES = {
    "H100": ["1g.10gb", "1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"],
    "A30": ["1g.6gb", "1g.6gb+me", "2g.12gb", "4g.24gb"],
}
LAYOUTS = {
    "H100": ("7x 1g.10gb", "3g.40gb + 2g.20gb + 1g.10gb + 1g.10gb", "4g.40gb + 1g.20gb + 1g.10gb", "3g.40gb + 3g.40gb"),
    "A30": ("4x 1g.6gb", "2g.12gb + 1g.6gb + 1g.6gb+me"),
}
many = worlds(150)


def asking(known: Job, profile: str, devices: int = 1) -> Job:
    """The job with each task asking for instances instead."""
    groups = tuple(
        msgspec.structs.replace(group, shape=msgspec.structs.replace(group.shape, gpus=0, mig=profile, devices=devices))
        for group in known.spec.task_groups
    )
    return msgspec.structs.replace(known, spec=msgspec.structs.replace(known.spec, task_groups=groups))


def joined(holders: list[Job]) -> Job:
    """One job with one task that has what all of these have: instances of one profile."""
    slots = [slot for known in holders for task in known.placement for slot in task.slots]
    (group,), (task,) = holders[0].spec.task_groups, holders[0].placement
    several = msgspec.structs.replace(group, shape=msgspec.structs.replace(group.shape, devices=len(slots)))
    spec = msgspec.structs.replace(holders[0].spec, task_groups=(several,))
    return msgspec.structs.replace(holders[0], spec=spec, placement=(task.on_slots(slots),))


def holder(name: str, on: Node, gpu: Gpu, placed: PlacedInstance, slices: int) -> Job:
    """A running job with one instance."""
    slot = MigSlot(
        gpu.id, MigInstance(placed.profile.name, placed.start), MilliGpu(1000 * placed.profile.memory_slices // slices)
    )
    task = TaskPlacement("worker", 0, on.name, (slot.instance.id_on(gpu.id),), mig=slot)
    spec = asking(job(name, "a", 1, 1), placed.profile.name).spec
    spec = msgspec.structs.replace(
        spec, task_groups=(TaskGroup("worker", 1, Shape(mig=placed.profile.name)),), topology=spec.topology
    )
    return msgspec.structs.replace(job(name, "a", 1, 1), spec=spec, phase="running", attempt=1, placement=(task,))


@st.composite
def partitioned(draw: st.DrawFn, nodes_max: int = 3, jobs_max: int = 6) -> tuple[Snapshot, Policy]:
    """Nodes of one or two types with some GPUs in MIG mode and some instances in use, and gangs that ask for some or for GPUs."""
    modes = {gpu_type: draw(st.sampled_from(["free", "free", "bounded", "fixed"])) for gpu_type in MODELS}
    nodes, jobs = [], []
    for index in range(draw(st.integers(1, nodes_max))):
        gpu_type = draw(st.sampled_from(["H100", "H100", "A30"]))
        made = node(f"n{index}", draw(st.integers(1, 2)), gpu_type, rack=f"r{index // 2}")
        model, gpus, held = mig_model(MODELS[gpu_type]), [], defaultdict[str, list[Job]](list)
        for gpu in made.gpus:
            found = draw(st.sampled_from([None, *_some_geometries(gpu_type, modes[gpu_type])]))
            in_use = [placed for placed in found or () if draw(st.integers(0, 2)) == 0]
            for p in in_use:
                one = holder(f"run-{made.name}-{gpu.index}-{p.start}", made, gpu, p, model.memory_slices)
                held[p.profile.name].append(one)
            listed = None if found is None else tuple(MigInstance(p.profile.name, p.start) for p in found)
            gpus.append(msgspec.structs.replace(gpu, instances=listed))
        for alike in held.values():
            jobs += [joined(alike)] if draw(st.integers(0, 2)) == 0 else alike
        kept = draw(st.integers(0, 3)) == 3
        nodes.append(msgspec.structs.replace(made, gpus=tuple(gpus), keeps_geometry=kept))
    for number in range(draw(st.integers(min(2, jobs_max), jobs_max))):
        gpu_type = str(draw(st.sampled_from(nodes)).gpu_type)
        required: Level | None = draw(st.sampled_from([None, None, None, "rack"]))
        pending = job(
            f"job-{number}",
            draw(st.sampled_from(["a", "b"])),
            draw(st.integers(1, 3)),
            draw(st.integers(1, 2)),
            types=[gpu_type],
            required=required,
        )
        instead = draw(st.sampled_from([None, None, None, *PROFILES[gpu_type]]))
        devices = draw(st.sampled_from([1, 1, 1, 2, 3]))
        jobs.append(asking(pending, instead, devices) if instead else pending)
    policy = policy_of(
        (Queue(QueueName("a")), Queue(QueueName("b"))),
        mig=tuple(
            MigGeometry(
                gpu_type.lower(),
                gpu_type.lower(),
                mode,  # type: ignore[arg-type]
                MODELS[gpu_type],
                LAYOUTS[gpu_type] if mode != "free" else (),
                None if mode == "fixed" else MigChanges(draw(st.sampled_from([0, 1, 2, 8, 8]))),
            )
            for gpu_type, mode in modes.items()
        ),
    )
    counted = (Counted(MIG_CHANGES, "h100", Instant(0), draw(st.sampled_from([0, 0, 1]))),)
    return snapshot_of(Instant(1000), nodes, jobs, InFlight(counters=counted)), policy


def _some_geometries(gpu_type: str, mode: str) -> list[tuple[PlacedInstance, ...]]:
    if mode == "free":
        return list(geometries(mig_model(MODELS[gpu_type])))[::37]
    return [found for layout in LAYOUTS[gpu_type] for found in realisations(MODELS[gpu_type], layout)[:2]]


@many
@given(partitioned())
def test_every_geometry_is_legal_and_nothing_in_use_is_touched(world: tuple[Snapshot, Policy]) -> None:
    snapshot, policy = world
    for optimiser in (None, optimise):
        plan = solve(snapshot, policy, optimiser)
        assert violations(snapshot, policy, plan) == ()
        in_use: dict[DeviceId, list[PlacedInstance]] = defaultdict(list)
        types = {gpu.id: known.gpu_type for known in snapshot.nodes for gpu in known.gpus}
        for known in applied(snapshot, plan).jobs:
            for task in known.placement:
                for slot in task.slots:
                    found = find_profile(mig_model(MODELS[types[slot.gpu]]), slot.instance.profile)
                    assert found is not None
                    in_use[slot.gpu].append(PlacedInstance(slot.instance.start, found))
        assert all(is_valid(mig_model(MODELS[types[gpu]]), held) for gpu, held in in_use.items())


@many
@given(partitioned())
def test_solving_again_changes_nothing_more(world: tuple[Snapshot, Policy]) -> None:
    snapshot, policy = world
    after = partitioned_by(applied(snapshot, plan := solve(snapshot, policy, optimise)), plan)
    used = Counter(
        known.pool
        for step in plan.steps
        if isinstance(step, Repartition)
        for known in snapshot.nodes
        if known.name == step.node
    )
    counters = (*snapshot.in_flight.counters, *(Counted(MIG_CHANGES, p, Instant(999), n) for p, n in used.items()))
    after = msgspec.structs.replace(after, in_flight=InFlight(counters=counters))
    assert solve(after, policy, optimise).steps == ()
    # Before it is seen that GPUs are partitioned, who has an instance on one is enough to know it.
    unseen = msgspec.structs.replace(after, nodes=snapshot.nodes)
    assert violations(unseen, policy, solve(unseen, policy, optimise)) == ()


def partitioned_by(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """The world after a plan's changes of GPUs."""
    made = {step.device: step.instances for step in plan.steps if isinstance(step, Repartition)}
    nodes = [
        msgspec.structs.replace(
            known,
            gpus=tuple(
                msgspec.structs.replace(gpu, instances=made[gpu.id]) if gpu.id in made else gpu for gpu in known.gpus
            ),
        )
        for known in snapshot.nodes
    ]
    return msgspec.structs.replace(snapshot, nodes=tuple(nodes))


@worlds(80)
@given(partitioned())
def test_the_greedy_answer_satisfies_every_row(world: tuple[Snapshot, Policy]) -> None:
    program, start = formulated(*world)
    assert program.is_satisfied_by(start)
    solution = optimise(program, start, EFFORT)
    assert solution is not None


ROUNDS = counted(250)


@pytest.mark.thorough
def test_the_round_is_nearly_as_good_as_trying_everything() -> None:
    tally: Counter[str] = Counter()

    @seed(11)
    @settings(max_examples=ROUNDS, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(partitioned(nodes_max=2, jobs_max=4))
    def compare(world: tuple[Snapshot, Policy]) -> None:
        answer, best, reached = both(*world)
        assert not better(reached, best), "the answer is better than possible: it breaks a rule"
        proven = all(layer.status == "proven" for layer in answer.certificate.layers)
        assert not (proven and better(best, reached)), "the certificate proves a value that is not the best"
        tally["rounds"] += 1
        tally["best"] += not better(best, reached)
        tally["instances"] += any(task.mig for start in answer.starts for task in start.placed.tasks)
        tally["by program"] += answer.certificate.stage == "mip"
        tally["proven"] += proven

    compare()
    assert tally["rounds"] == ROUNDS
    assert tally["instances"] >= ROUNDS // 5, "hardly anything is partitioned: these worlds do not test it"
    assert tally["best"] >= 0.98 * tally["rounds"]


FREE = MigGeometry("parts", "h100", "free", "H100-80GB")
ONE = MigInstance("1g.10gb", 0)
THREE = MigInstance("3g.40gb", 4)


def world_of(geometry: MigGeometry = FREE, **counted: int) -> tuple[Snapshot, Policy]:
    """Two GPUs, one of them with an instance in use and one that nobody has; two instances are asked for."""
    made = node("n1", 2)
    gpu = msgspec.structs.replace(made.gpus[0], instances=(ONE, THREE))
    made = msgspec.structs.replace(made, gpus=(gpu, made.gpus[1]))
    profile = find_profile(mig_model("H100-80GB"), "1g.10gb")
    assert profile is not None
    wanted = [asking(job("x", "a", 1, 1), "3g.40gb"), asking(job("y", "a", 1, 1), "4g.40gb")]
    counters = tuple(Counted(MIG_CHANGES, pool, Instant(0), count) for pool, count in counted.items())
    held = holder("r", made, gpu, PlacedInstance(0, profile), 8)
    policy = policy_of((Queue(QueueName("a")),), mig=(geometry,))
    return snapshot_of(Instant(1), [made], [held, *wanted], InFlight(counters=counters)), policy


def step_of(plan: Plan) -> Repartition:
    (step,) = (step for step in plan.steps if isinstance(step, Repartition))
    return step


def test_the_plan_is_good_before_it_is_spoilt() -> None:
    world, policy = world_of()
    plan = solve(world, policy, optimise)
    assert violations(world, policy, plan) == ()
    assert step_of(plan).instances == (MigInstance("4g.40gb", 0),)
    assert [step.tasks[0].devices for step in plan.steps if isinstance(step, Bind)] == [
        ("n1/0/3g.40gb@4",),
        ("n1/1/4g.40gb@0",),
    ]


def changed(**fields: Any) -> Callable[[Plan], Plan]:
    def change(plan: Plan) -> Plan:
        steps = [
            msgspec.structs.replace(step, **fields) if isinstance(step, Repartition) else step for step in plan.steps
        ]
        return msgspec.structs.replace(plan, steps=tuple(steps))

    return change


def rebound(name: str, *instance: object, cost: int = 500, gpu: str = "n1/0") -> Callable[[Plan], Plan]:
    slot = MigSlot(DeviceId(gpu), MigInstance(*instance), MilliGpu(cost))  # type: ignore[arg-type]
    task = TaskPlacement("worker", 0, node("n1", 0).name, (slot.instance.id_on(slot.gpu),), mig=slot)

    def change(plan: Plan) -> Plan:
        steps = [
            msgspec.structs.replace(step, tasks=(task,)) if isinstance(step, Bind) and step.job == name else step
            for step in plan.steps
        ]
        return msgspec.structs.replace(plan, steps=tuple(steps))

    return change


FOUR = MigInstance("4g.40gb", 0)
ME = tuple(MigInstance("1g.10gb+me", start) for start in (4, 5))


@pytest.mark.parametrize(
    ("rule", "geometry", "change"),
    [
        ("S6", FREE, changed(instances=(MigInstance("4g.40gb", 4),))),
        ("S6", FREE, changed(instances=(MigInstance("4g.40gb", 0), MigInstance("1g.10gb", 3)))),
        ("S6", FREE, changed(instances=(MigInstance("4g.40gb", 0), *ME))),
        ("S6", FREE, changed(instances=(MigInstance("4g.20gb", 0),))),
        ("S6", FREE, changed(device=DeviceId("n1/0"), destroys=(ONE, THREE))),
        ("S6", FREE, changed(destroys=(ONE,))),
        ("S6", FREE, changed(device=DeviceId("n1/7"))),
        ("S6", FREE, lambda plan: msgspec.structs.replace(plan, steps=(*plan.steps, step_of(plan)))),
        ("S6", msgspec.structs.replace(FREE, changes=MigChanges(0)), changed()),
        ("S6", msgspec.structs.replace(FREE, mode="fixed"), changed()),
        ("S6", msgspec.structs.replace(FREE, mode="bounded", layouts=("7x 1g.10gb",)), changed()),
        ("S1", FREE, changed(instances=(MigInstance("7g.80gb", 0),))),
        ("S1", FREE, rebound("x", "3g.40gb", 0)),
        ("S1", FREE, rebound("y", "4g.40gb", 0)),
        ("S1", FREE, rebound("x", "3g.40gb", 4, gpu="n9/9")),
        ("S2", FREE, rebound("x", "1g.10gb", 0, cost=125)),
        ("S3", FREE, rebound("x", "3g.40gb", 4, cost=375)),
    ],
)
def test_a_fault_is_found(rule: str, geometry: MigGeometry, change: Callable[[Plan], Plan]) -> None:
    world, good = world_of()
    plan = change(solve(world, good, optimise))
    policy = msgspec.structs.replace(good, mig=(geometry,))
    plan = msgspec.structs.replace(plan, policy=policy.digest)
    assert rule in {violation.rule for violation in violations(world, policy, plan)}


def several() -> tuple[Snapshot, Policy]:
    """A GPU with two idle instances of a kind and one of another; a task asks for two of the first."""
    made = node("n1", 2)
    instances = (ONE, MigInstance("1g.10gb", 1), THREE)
    made = msgspec.structs.replace(
        made, gpus=(msgspec.structs.replace(made.gpus[0], instances=instances), made.gpus[1])
    )
    wanted = asking(job("x", "a", 1, 1), "1g.10gb", 2)
    return snapshot_of(Instant(1), [made], [wanted]), policy_of((Queue(QueueName("a")),), mig=(FREE,))


@pytest.mark.parametrize(
    ("rules", "slots"),
    [
        ((), [("n1/0", 0, 125), ("n1/0", 1, 125)]),
        (("S2",), [("n1/0", 0, 125)]),
        (("S1", "S2"), [("n1/0", 0, 125), ("n1/0", 0, 125)]),
        (("S2",), [("n1/0", 0, 125), ("n1/0", 4, 500)]),
        (("S1",), [("n1/0", 0, 125), ("n1/0", 2, 125)]),
        (("S1",), [("n1/0", 0, 125), ("n1/1", 0, 125)]),
        (("S3",), [("n1/0", 0, 125), ("n1/0", 1, 0)]),
    ],
)
def test_each_of_several_instances_is_judged(rules: tuple[str, ...], slots: list[tuple[str, int, int]]) -> None:
    world, policy = several()
    plan = solve(world, policy, optimise)
    assert violations(world, policy, plan) == ()
    (bind,) = plan.steps
    assert isinstance(bind, Bind)
    named = [
        MigSlot(DeviceId(gpu), MigInstance("3g.40gb" if cost == 500 else "1g.10gb", start), MilliGpu(cost))
        for gpu, start, cost in slots
    ]
    steps = (msgspec.structs.replace(bind, tasks=(bind.tasks[0].on_slots(named),)),)
    bad = msgspec.structs.replace(plan, steps=steps)
    assert tuple(sorted({violation.rule for violation in violations(world, policy, bad)})) == rules


def test_a_node_that_keeps_its_geometry_gives_what_it_has_and_no_more() -> None:
    world, policy = world_of()
    plan = solve(world, policy, optimise)
    kept = msgspec.structs.replace(
        world, nodes=tuple(msgspec.structs.replace(known, keeps_geometry=True) for known in world.nodes)
    )
    bad = msgspec.structs.replace(plan, snapshot=kept.digest)
    assert [(one.rule, one.subject) for one in violations(kept, policy, bad)] == [("S6", "n1/1")]
    now = solve(kept, policy, optimise)
    assert violations(kept, policy, now) == ()
    assert [(type(step), getattr(step, "job", "")) for step in now.steps] == [(Bind, "x")]


def test_a_gpu_in_mig_mode_is_not_bound_as_a_whole() -> None:
    made = node("n1", 2)
    gpus = (msgspec.structs.replace(made.gpus[0], instances=(THREE,)), made.gpus[1])
    world = snapshot_of(Instant(1), [msgspec.structs.replace(made, gpus=gpus)], [job("w", "a", 1, 1)])
    policy = policy_of((Queue(QueueName("a")),), mig=(FREE,))
    plan = solve(world, policy, None)
    (bind,) = plan.steps
    assert isinstance(bind, Bind)
    assert violations(world, policy, plan) == ()
    task = msgspec.structs.replace(bind.tasks[0], devices=(DeviceId("n1/0"),))
    bad = msgspec.structs.replace(plan, steps=(msgspec.structs.replace(bind, tasks=(task,)),))
    assert {violation.rule for violation in violations(world, policy, bad)} == {"S1"}


def test_a_gpu_that_a_job_holds_whole_is_not_partitioned() -> None:
    """Nothing else in the plan has to do with the GPU, so only its holder speaks against it."""
    world, policy = world_of()
    plan = solve(world, policy, optimise)
    (step,) = (known for known in plan.steps if isinstance(known, Repartition))
    placed = (TaskPlacement("worker", 0, world.nodes[0].name, (step.device,)),)
    whole = msgspec.structs.replace(job("w", "a", 1, 1), phase="running", attempt=1, placement=placed)
    held = msgspec.structs.replace(world, jobs=(*world.jobs, whole))
    bad = msgspec.structs.replace(plan, snapshot=held.digest)
    assert f"S6 {step.device}: is partitioned while a job holds it" in map(str, violations(held, policy, bad))


def test_tasks_that_want_one_island_get_no_instances() -> None:
    world, policy = world_of()
    plan = solve(world, policy, optimise)
    wants = next(known for known in world.jobs if known.name == "x")
    near = TopologyRequest(required="island")
    pair = msgspec.structs.replace(wants.spec.task_groups[0], replicas=2)
    spec = msgspec.structs.replace(wants.spec, topology=near, task_groups=(pair,))
    asked = msgspec.structs.replace(wants, spec=spec)
    island = msgspec.structs.replace(world, jobs=tuple(asked if known is wants else known for known in world.jobs))

    def both(step: Bind) -> Bind:
        return msgspec.structs.replace(step, tasks=(*step.tasks, msgspec.structs.replace(step.tasks[0], index=1)))

    steps = tuple(both(step) if isinstance(step, Bind) and step.job == "x" else step for step in plan.steps)
    bad = msgspec.structs.replace(plan, snapshot=island.digest, steps=steps)
    assert [one.subject for one in violations(island, policy, bad) if one.rule == "S5"] == ["x"]


def test_a_replay_counts_changes_for_an_hour() -> None:
    once = msgspec.structs.replace(FREE, changes=MigChanges(1))
    policy = policy_of((Queue(QueueName("a")),), mig=(once,))
    wanted = [asking(job(name, "a", 1, 1), "7g.80gb") for name in "xy"]
    replay = Replay((node("n1", 2),), policy, None, Duration(0))
    again = asking(job("z", "a", 1, 1, submitted=3_600_001), "1g.10gb")
    trace = [TraceJob(known, Duration(10_000_000)) for known in (*wanted, again)]
    plans = [held.plan for held in replay.rounds(trace, Instant(4_000_000))]
    assert [sum(isinstance(step, Repartition) for step in plan.steps) for plan in plans] == [1, 1]
    started = {str(name): known.started_at for name, known in replay.runs.items()}
    assert started["x"] == Instant(0)
    assert started["y"] == Instant(3_600_001)
    assert started["z"] is None


@pytest.mark.parametrize(
    ("gpu_type", "model"),
    [
        ("H100-SXM5-80GB", "H100-80GB"),
        ("A100-SXM4-40GB", "A100-40GB"),
        ("H100-NVL-94GB", "H100-NVL-94GB"),
        ("A30", "A30-24GB"),
        ("H200", "H200-141GB"),
        ("H100", ""),
        ("A100-SXM4-64GB", ""),
        ("L40S", ""),
    ],
)
def test_the_model_is_read_off_the_types_name(gpu_type: str, model: str) -> None:
    assert model_of_type(GpuType(gpu_type)) == model


def test_layouts_are_placed_where_instances_may_begin() -> None:
    assert profiles_of("2x 1g.10gb + 1g.10gb+me") == ("1g.10gb", "1g.10gb", "1g.10gb+me")
    (first, *_) = realisations("H100-80GB", "3g.40gb + 2g.20gb + 2x 1g.10gb")
    # With three slices at 0 the rest does not fit: two begin at 0, 2 or 4 only, and one never at 7.
    starts = [(placed.start, placed.profile.name) for placed in first]
    assert starts == [(0, "2g.20gb"), (2, "1g.10gb"), (3, "1g.10gb"), (4, "3g.40gb")]
    assert realisations("H100-80GB", "4g.40gb + 4g.40gb") == ()
    with pytest.raises(ValueError, match="expected a layout"):
        profiles_of("7 1g.10gb")


@many
@given(partitioned())
def test_whether_a_job_could_ever_start_does_not_depend_on_how_gpus_are_partitioned_now(
    world: tuple[Snapshot, Policy],
) -> None:
    snapshot, policy = world
    built = nominal_nodes(snapshot.nodes, pool_rules(policy, snapshot).rules)
    now, built_gate = (Gate(Emptied(policy, nodes), RoundCache()) for nodes in (snapshot.nodes, built))
    for pending in snapshot.pending:
        assert built_gate.admit(pending).options == now.admit(pending).options


def test_gpus_that_may_be_partitioned_are_built_whole_and_others_as_they_are() -> None:
    gpus = tuple(Gpu(DeviceId(f"g{index}"), index, instances=(MigInstance("7g.80gb", 0),)) for index in range(2))
    one = msgspec.structs.replace(node("n", 0, "H100"), gpus=gpus, ready=False)
    for mode, layouts, whole in (("free", (), True), ("bounded", ("7x 1g.10gb",), False), ("fixed", (), False)):
        changes = None if mode == "fixed" else MigChanges(1)
        geometry = MigGeometry("h100", "h100", mode, MODELS["H100"], layouts, changes)  # type: ignore[arg-type]
        policy = policy_of((Queue(QueueName("a")),), mig=(geometry,))
        (built,) = nominal_nodes((one,), pool_rules(policy, snapshot_of(Instant(0), (one,), ())).rules)
        assert (built.ready, [gpu.instances is None for gpu in built.gpus]) == (True, [whole, whole])
        kept = msgspec.structs.replace(one, keeps_geometry=True)
        (built,) = nominal_nodes((kept,), pool_rules(policy, snapshot_of(Instant(0), (kept,), ())).rules)
        assert built.gpus == gpus
