"""GPUs are emptied so that they can be partitioned anew for guarantees: who leaves, what is promised, and that it comes true."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import combinations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.capacity.partitioning import MIG_CHANGES
from solver.checker.check import violations
from solver.milp.highs import optimise
from solver.model.cluster import DeviceId, MigInstance
from solver.model.inflight import Counter as Counted
from solver.model.mig import PlacedInstance, cost_milli_gpu, geometries, is_valid, mig_model
from solver.model.mig_layout import find_profile, realisations
from solver.model.quantities import MILLI_PER_GPU, Duration, Instant, MilliGpu
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, MigSlot, QueueName, TaskPlacement
from solver.plan.plan import Bind, Evict, Nominate, Plan, Repartition, Withdraw
from solver.policy.division import MigChanges, MigGeometry
from solver.policy.policy import Policy, policy_of
from solver.round.solve import solve
from solver.simulation.replay import Replay
from solver.simulation.trace import TraceJob
from tests.drawn import worlds
from tests.solver.aftermath import applied, victims_gone
from tests.solver.preemption.test_mig_evictions import lent
from tests.solver.round.test_mig import MODELS, asking, holder, partitioned, partitioned_by
from tests.solver.worlds import job, node

ROUNDS_MAX = 10


@st.composite
def draining(draw: st.DrawFn) -> tuple[Snapshot, Policy]:
    """Worlds where all that runs is borrowed, and may have to leave so that GPUs can be partitioned anew.

    Some GPUs are lent as wholes, and whoever waits has a guarantee.
    """
    snapshot, policy = draw(partitioned(nodes_max=2))
    in_parts = {gpu for known in snapshot.jobs for task in known.placement if task.mig for gpu in task.on_gpus}
    able = [(known, gpu) for known in snapshot.nodes for gpu in known.gpus if gpu.id not in in_parts]
    lent_whole = {gpu.id for _, gpu in able if draw(st.booleans())}
    nodes = [
        msgspec.structs.replace(
            known,
            gpus=tuple(
                msgspec.structs.replace(gpu, instances=None) if gpu.id in lent_whole else gpu for gpu in known.gpus
            ),
        )
        for known in snapshot.nodes
    ]
    wholes = (
        msgspec.structs.replace(
            job(f"whole-{gpu.id.replace('/', '-')}", "a", 1, 1, types=[known.gpu_type]),
            phase="running",
            attempt=1,
            placement=(TaskPlacement("worker", 0, known.name, (gpu.id,)),),
        )
        for known, gpu in able
        if gpu.id in lent_whole
    )
    jobs = (
        msgspec.structs.replace(known, spec=msgspec.structs.replace(known.spec, queue=QueueName("b")))
        if known.phase == "pending"
        else known
        for known in snapshot.jobs
    )
    world = snapshot_of(snapshot.time, nodes, (*jobs, *wholes), snapshot.in_flight)
    snapshot, policy = lent((world, policy))
    known = tuple(
        geometry
        if geometry.changes is None
        else msgspec.structs.replace(geometry, changes=MigChanges(draw(st.integers(1, 4)), drain="entitled"))
        for geometry in policy.mig
    )
    return snapshot, msgspec.structs.replace(policy, mig=known)


def acted_on(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """The world after a plan: GPUs are partitioned as it says, and that is counted."""
    pools = {known.name: known.pool for known in snapshot.nodes}
    made = Counter(pools[step.node] for step in plan.steps if isinstance(step, Repartition))
    after = partitioned_by(applied(snapshot, plan), plan)
    counters = (
        *snapshot.in_flight.counters,
        *(Counted(MIG_CHANGES, pool, snapshot.time, count) for pool, count in made.items()),
    )
    return msgspec.structs.replace(after, in_flight=msgspec.structs.replace(after.in_flight, counters=counters))


def left(snapshot: Snapshot) -> Snapshot:
    """Everybody who was asked to leave has left; what was changed in the hour stays counted."""
    gone = victims_gone(snapshot)
    counters = snapshot.in_flight.counters
    return msgspec.structs.replace(gone, in_flight=msgspec.structs.replace(gone.in_flight, counters=counters))


def has_one_owner_each(snapshot: Snapshot) -> bool:
    """Whether no GPU is somebody's as a whole and another's, and all instances in use could be there together."""
    types = {gpu.id: known.gpu_type for known in snapshot.nodes for gpu in known.gpus}
    in_use: dict[DeviceId, list[PlacedInstance]] = {}
    wholes: Counter[DeviceId] = Counter()
    for known in snapshot.jobs:
        for task in known.placement:
            if task.mig is None:
                wholes.update(task.devices)
                continue
            for slot in task.slots:
                profile = find_profile(mig_model(MODELS[types[slot.gpu]]), slot.instance.profile)
                assert profile is not None
                in_use.setdefault(slot.gpu, []).append(PlacedInstance(slot.instance.start, profile))
    return (
        all(count == 1 for count in wholes.values())
        and not wholes.keys() & in_use.keys()
        and all(is_valid(mig_model(MODELS[types[gpu]]), held) for gpu, held in in_use.items())
    )


@pytest.mark.thorough
@worlds(120)
@given(draining())
def test_what_is_promised_is_made_and_no_world_has_two_owners(world: tuple[Snapshot, Policy]) -> None:
    snapshot, policy = world
    for optimiser in (None, optimise):
        plan = solve(snapshot, policy, optimiser)
        assert violations(snapshot, policy, plan) == ()
        while_they_leave = acted_on(snapshot, plan)
        waiting = solve(while_they_leave, policy, optimiser)
        assert violations(while_they_leave, policy, waiting) == ()
        assert not [step for step in waiting.steps if isinstance(step, Withdraw)]
        after = left(while_they_leave)
        then = solve(after, policy, optimiser)
        assert violations(after, policy, then) == ()
        bound = {step.job: step.tasks for step in then.steps if isinstance(step, Bind)}
        assert [bound.get(step.job) for step in plan.steps if isinstance(step, Nominate)] == [
            step.tasks for step in plan.steps if isinstance(step, Nominate)
        ]
        assert has_one_owner_each(acted_on(after, then))


@worlds(60)
@given(draining())
def test_it_comes_to_rest(world: tuple[Snapshot, Policy]) -> None:
    snapshot, policy = world
    steps = []
    for _ in range(ROUNDS_MAX):
        plan = solve(snapshot, policy, None)
        assert violations(snapshot, policy, plan) == ()
        steps.append(plan.steps)
        if not plan.steps:
            return
        # Those who leave take two rounds: nobody may take from them what is promised already.
        asked = acted_on(snapshot, plan)
        assert has_one_owner_each(asked)
        meanwhile = solve(asked, policy, None)
        assert violations(asked, policy, meanwhile) == ()
        snapshot = left(acted_on(asked, meanwhile))
    raise AssertionError(f"it does not come to rest: {steps}")


LISTED = ("7x 1g.10gb", "3g.40gb + 3g.40gb", "4g.40gb + 1g.20gb + 1g.10gb")


@st.composite
def one_gpu(draw: st.DrawFn) -> tuple[Snapshot, Policy]:
    """One GPU in instances, of which some are lent, and one who is guaranteed what it asks for."""
    mode = draw(st.sampled_from(["free", "bounded"]))
    layouts = LISTED if mode == "bounded" else ()
    has = draw(st.sampled_from(_allowed(layouts)))
    made = node("n0", 1, "H100")
    listed = tuple(MigInstance(placed.profile.name, placed.start) for placed in has)
    made = msgspec.structs.replace(made, gpus=(msgspec.structs.replace(made.gpus[0], instances=listed),))
    held = [holder(f"lent-{p.start}", made, made.gpus[0], p, 8) for p in has if draw(st.integers(0, 3))]
    preemptor = job("taker", "b", 1, 1, types=["H100"])
    profile = draw(st.sampled_from([None, "1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"]))
    changes = MigChanges(1, "entitled")
    parts = MigGeometry("parts", "h100", mode, MODELS["H100"], layouts, changes)  # type: ignore[arg-type]
    waiting = asking(preemptor, profile, draw(st.sampled_from([1, 1, 2, 3]))) if profile else preemptor
    return lent((snapshot_of(Instant(1000), [made], [*held, waiting]), policy_of((), mig=(parts,))))


@cache
def _allowed(layouts: tuple[str, ...]) -> list[tuple[PlacedInstance, ...]]:
    if layouts:
        return [found for layout in layouts for found in realisations(MODELS["H100"], layout)]
    return list(geometries(mig_model(MODELS["H100"])))[1:]


@cache
def _instances(layouts: tuple[str, ...]) -> list[tuple[MigInstance, ...]]:
    return [tuple(MigInstance(placed.profile.name, placed.start) for placed in found) for found in _allowed(layouts)]


def can_have(snapshot: Snapshot, policy: Policy, gone: set[str]) -> bool:
    """Whether the preemptor could be served once these have left, by trying every geometry."""
    staying = {
        slot.instance
        for known in snapshot.jobs
        if known.name not in gone
        for task in known.placement
        for slot in task.slots
    }
    (preemptor,) = snapshot.pending
    shape = preemptor.spec.task_groups[0].shape
    wanted = shape.mig
    if wanted is None:
        return not staying
    there = [tuple(snapshot.nodes[0].gpus[0].instances or ())]
    return any(
        staying <= set(found) and sum(one.profile == wanted and one not in staying for one in found) >= shape.devices
        for found in (*there, *_instances(policy.mig[0].layouts))
    )


def gpu_for_gpu(snapshot: Snapshot) -> Iterator[set[str]]:
    """Which jobs may leave: together no more than the preemptor gets, but for the rest of one."""
    held = {str(known.name): sum(task.gpus for task in known.placement) for known in snapshot.jobs if known.placement}
    (preemptor,) = snapshot.pending
    shape = preemptor.spec.task_groups[0].shape
    wanted = shape.mig
    model = mig_model(MODELS["H100"])
    profile = find_profile(model, wanted) if wanted else None
    gained = cost_milli_gpu(model, profile) * shape.devices if profile else MILLI_PER_GPU
    for count in range(len(held) + 1):
        for gone in combinations(held, count):
            left = sum(held[name] for name in gone)
            if left <= gained or left - max(held[name] for name in gone) < gained:
                yield set(gone)


@worlds(480)
@given(one_gpu())
def test_nobody_leaves_who_could_stay_and_nobody_waits_who_could_be_served(world: tuple[Snapshot, Policy]) -> None:
    snapshot, policy = world
    plan = solve(snapshot, policy, None)
    assert violations(snapshot, policy, plan) == ()
    leaving = {str(step.job) for step in plan.steps if isinstance(step, Evict)}
    served = any(isinstance(step, Bind | Nominate) for step in plan.steps)
    assert served == any(can_have(snapshot, policy, gone) for gone in gpu_for_gpu(snapshot))
    assert can_have(snapshot, policy, leaving) or not served
    assert not any(can_have(snapshot, policy, leaving - {name}) for name in leaving)


DRAINS = MigGeometry("parts", "h100", "free", MODELS["H100"], changes=MigChanges(1, "entitled"))
ONES = (MigInstance("1g.10gb", 0), MigInstance("1g.10gb", 5))
HALF = MigInstance("3g.40gb", 0)


def two_ones(*more: Job) -> tuple[Snapshot, Policy]:
    """One GPU with two small instances, both lent, and one that is somebody else's; a guarantee asks for half a GPU."""
    made = node("n0", 2, "H100")
    gpus = (msgspec.structs.replace(made.gpus[0], instances=ONES), made.gpus[1])
    made = msgspec.structs.replace(made, gpus=gpus)
    profile = find_profile(mig_model("H100-80GB"), "1g.10gb")
    assert profile is not None
    ones = [holder(f"lent-{one.start}", made, gpus[0], PlacedInstance(one.start, profile), 8) for one in ONES]
    whole = msgspec.structs.replace(
        job("other", "b", 1, 1),
        phase="running",
        attempt=1,
        placement=(TaskPlacement("worker", 0, made.name, (gpus[1].id,)),),
    )
    owner = asking(job("owner", "b", 1, 1), "3g.40gb")
    return lent((snapshot_of(Instant(1000), [made], [*ones, whole, owner, *more]), policy_of((), mig=(DRAINS,))))


def faults(snapshot: Snapshot, policy: Policy, plan: Plan) -> set[tuple[str, str]]:
    """The rules that a plan breaks, each with where."""
    return {(known.rule, str(known.subject)) for known in violations(snapshot, policy, plan)}


def slot_on(gpu: DeviceId, instance: MigInstance) -> TaskPlacement:
    """A task of the owner on an instance of half a GPU."""
    slot = MigSlot(gpu, instance, MilliGpu(500))
    return TaskPlacement("worker", 0, node("n0", 0).name, (instance.id_on(gpu),), mig=slot)


def test_one_of_two_leaves() -> None:
    snapshot, policy = two_ones()
    plan = solve(snapshot, policy, None)
    assert faults(snapshot, policy, plan) == set()
    assert [step.job for step in plan.steps if isinstance(step, Evict)] == ["lent-0"]
    (promise,) = (step for step in plan.steps if isinstance(step, Nominate))
    assert promise.tasks == (slot_on(snapshot.nodes[0].gpus[0].id, HALF),)


def test_a_promise_where_somebody_stays_is_found() -> None:
    snapshot, policy = two_ones()
    plan, gpu = solve(snapshot, policy, None), snapshot.nodes[0].gpus[0].id
    steps = tuple(
        msgspec.structs.replace(step, tasks=(slot_on(gpu, MigInstance("3g.40gb", 4)),))
        if isinstance(step, Nominate)
        else step
        for step in plan.steps
    )
    assert ("S6", gpu) in faults(snapshot, policy, msgspec.structs.replace(plan, steps=steps))
    unasked = tuple(step for step in plan.steps if not isinstance(step, Evict))
    assert ("S6", gpu) in faults(snapshot, policy, msgspec.structs.replace(plan, steps=unasked))


@pytest.mark.parametrize(
    ("geometry", "where"),
    [
        (msgspec.structs.replace(DRAINS, changes=MigChanges(1)), "n0/0"),
        (msgspec.structs.replace(DRAINS, mode="fixed"), "n0/0"),
        (msgspec.structs.replace(DRAINS, mode="bounded", layouts=("3g.40gb + 3g.40gb",)), "n0/0"),
        (msgspec.structs.replace(DRAINS, changes=MigChanges(0, "entitled")), "h100"),
    ],
)
def test_a_promise_that_the_policy_does_not_allow_is_found(geometry: MigGeometry, where: str) -> None:
    snapshot, good = two_ones()
    policy = msgspec.structs.replace(good, mig=(geometry,))
    plan = msgspec.structs.replace(solve(snapshot, good, None), policy=policy.digest)
    assert ("S6", where) in faults(snapshot, policy, plan)


def test_a_gpu_that_is_emptied_for_who_has_no_guarantee_is_found() -> None:
    snapshot, good = two_ones()
    queues = tuple(
        msgspec.structs.replace(
            queue,
            quota=tuple(msgspec.structs.replace(quota, guaranteed=MilliGpu(1000)) for quota in queue.quota),
        )
        for queue in good.queues
    )
    policy = msgspec.structs.replace(good, queues=queues)
    plan = msgspec.structs.replace(solve(snapshot, good, None), policy=policy.digest)
    assert ("S4", "owner") in faults(snapshot, policy, plan)


def test_what_is_pledged_is_nobody_elses() -> None:
    late = asking(job("late", "b", 1, 1), "1g.10gb")
    snapshot, policy = two_ones()
    asked = left(acted_on(snapshot, solve(snapshot, policy, None)))
    gpu, still = asked.nodes[0].gpus[0].id, asked.in_flight
    waiting = snapshot_of(asked.time, asked.nodes, [*asked.jobs, late], still)
    plan = solve(waiting, policy, None)
    assert faults(waiting, policy, plan) == set()
    assert {step.job for step in plan.steps if isinstance(step, Bind)} == {"owner"}
    first = msgspec.structs.replace(plan, steps=tuple(step for step in plan.steps if isinstance(step, Repartition)))
    assert ("S6", gpu) in faults(waiting, policy, first)
    small = MigSlot(gpu, ONES[0], MilliGpu(125))
    task = TaskPlacement("worker", 0, waiting.nodes[0].name, (ONES[0].id_on(gpu),), mig=small)
    (bind,) = (step for step in plan.steps if isinstance(step, Bind))
    other = msgspec.structs.replace(plan, steps=(msgspec.structs.replace(bind, job=late.name, tasks=(task,)),))
    assert ("S1", "late") in faults(waiting, policy, other)


def test_a_replay_empties_a_gpu_and_makes_it_whole() -> None:
    made = node("n0", 1, "H100")
    _, policy = lent((snapshot_of(Instant(0), [made], []), policy_of((), mig=(DRAINS,))))
    policy = msgspec.structs.replace(policy, mig=(msgspec.structs.replace(DRAINS, changes=MigChanges(2, "entitled")),))
    halves = asking(job("halves", "a", 2, 1, types=["H100"]), "3g.40gb")
    owner = job("owner", "b", 1, 1, submitted=100_000)
    replay = Replay((made,), policy, None, Duration(0))
    trace = [TraceJob(known, Duration(1_000_000)) for known in (halves, owner)]
    plans = [held.plan for held in replay.rounds(trace, Instant(500_000))]
    made_into = [step.instances for plan in plans for step in plan.steps if isinstance(step, Repartition)]
    assert made_into == [(MigInstance("3g.40gb", 0), MigInstance("3g.40gb", 4)), None]
    runs = {str(name): known for name, known in replay.runs.items()}
    assert (runs["halves"].evictions, runs["halves"].running_since) == (1, None)
    assert runs["owner"].started_at is not None
    assert replay.nodes[0].gpus[0].instances is None
