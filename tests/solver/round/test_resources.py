"""What nodes have beside GPUs, CPU and memory: no plan asks more of a node than it has, and what is plentiful changes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from solver.checker.check import violations
from solver.milp.highs import optimise
from solver.model.amounts import Amounts, amounts_of, unsaid
from solver.model.cluster import Node, NodeName
from solver.model.document import decode, encode, pack, unpack
from solver.model.quantities import Cpu
from solver.model.shape import Shape
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job
from solver.plan.plan import Bind, Grow, Plan
from solver.policy.policy import Policy
from solver.round.solve import solve
from tests.drawn import worlds
from tests.solver.aftermath import left_to_do
from tests.solver.worlds import PORT, policies, sharing_policies, snapshots, with_fractions, with_resources, with_sets

ASKING = st.one_of(
    st.tuples(snapshots(elastic=True, close=True).flatmap(with_resources), policies()),
    st.tuples(snapshots(held_one_in=1).flatmap(with_resources), policies()),
    st.tuples(snapshots().flatmap(with_fractions).flatmap(with_resources), policies().flatmap(sharing_policies)),
    st.tuples(snapshots().flatmap(with_sets).flatmap(with_resources), policies(keeping=True)),
)

PLAIN = st.one_of(
    st.tuples(snapshots(elastic=True, close=True, held_one_in=2), policies()),
    st.tuples(snapshots().flatmap(with_fractions), policies().flatmap(sharing_policies)),
)

World = tuple[Snapshot, Policy]


@worlds(300)
@given(ASKING)
def test_no_plan_asks_more_of_a_node_than_it_has(world: World) -> None:
    snapshot, policy = world
    for optimiser in (None, optimise):
        plan = solve(snapshot, policy, optimiser)
        assert violations(snapshot, policy, plan) == ()
        assert not overfull(snapshot, plan)


@worlds(60)
@given(ASKING)
def test_snapshots_and_plans_on_record_keep_them(world: World) -> None:
    snapshot, policy = world
    kept = decode(encode(snapshot), Snapshot)
    assert kept == snapshot == unpack(pack(snapshot), Snapshot)
    assert encode(solve(kept, policy, None)) == encode(solve(snapshot, policy, None))


@worlds(100)
@given(ASKING)
def test_worlds_come_to_rest(world: World) -> None:
    snapshot, policy = world
    assert left_to_do(snapshot, policy) == []


@worlds(100)
@given(ASKING, st.permutations(["rdma/hca", "pods", "zzz"]))
def test_names_of_resources_change_nothing(world: World, others: list[str]) -> None:
    snapshot, policy = world
    called = {**dict(zip(("rdma/hca", "pods"), others, strict=False)), PORT: "hostPort/UDP/53"}

    def renamed(amounts: Amounts) -> Amounts:
        return amounts_of({called[name]: amount for name, amount in amounts.items()})

    other = changed(
        snapshot,
        lambda shape: msgspec.structs.replace(shape, resources=renamed(shape.resources)),
        lambda node: msgspec.structs.replace(node, resources=renamed(node.resources)),
    )
    assert solve(other, policy, None).steps == solve(snapshot, policy, None).steps


@worlds(200)
@given(PLAIN)
def test_what_is_plentiful_changes_nothing(world: World) -> None:
    snapshot, policy = world
    other = changed(
        snapshot,
        lambda shape: msgspec.structs.replace(shape, resources=Amounts([("pods", 1)])),
        lambda node: msgspec.structs.replace(node, resources=Amounts([("pods", 110)])),
    )
    for optimiser in (None, optimise):
        assert solve(other, policy, optimiser).steps == solve(snapshot, policy, optimiser).steps


@worlds(200)
@given(PLAIN)
def test_what_says_no_more_than_cpu_changes_nothing(world: World) -> None:
    """Each constraint by a resource is one by CPU as well, so that wherever the former counts for less something is left out."""
    snapshot, policy = world
    other = changed(
        snapshot,
        lambda shape: msgspec.structs.replace(shape, resources=cores(shape.cpu)),
        lambda node: msgspec.structs.replace(node, resources=cores(node.cpu)),
    )
    assert solve(other, policy, None).steps == solve(snapshot, policy, None).steps
    assert reached(other, policy) == reached(snapshot, policy)


@worlds(300)
@given(snapshots(elastic=True, close=True, held_one_in=99), policies())
def test_where_nothing_runs_resources_are_counted_as_cpu_is(snapshot: Snapshot, policy: Policy) -> None:
    """Quota and guarantees speak of CPU, and of no other resource: without them, and with nothing running, both are alike."""
    other = changed(
        snapshot,
        lambda shape: msgspec.structs.replace(shape, cpu=Cpu(0), resources=cores(shape.cpu)),
        lambda node: msgspec.structs.replace(node, resources=cores(node.cpu)),
    )
    assert reached(other, policy) == reached(snapshot, policy)


def cores(cpu: Cpu) -> Amounts:
    return amounts_of({"cores": int(cpu)} if cpu else {})


def changed(snapshot: Snapshot, shape_of: Callable[[Shape], Shape], node_of: Callable[[Node], Node]) -> Snapshot:
    def after(known: Job) -> Job:
        groups = tuple(msgspec.structs.replace(group, shape=shape_of(group.shape)) for group in known.spec.task_groups)
        return msgspec.structs.replace(known, spec=msgspec.structs.replace(known.spec, task_groups=groups))

    nodes, jobs = map(node_of, snapshot.nodes), map(after, snapshot.jobs)
    return snapshot_of(snapshot.time, nodes, jobs, snapshot.in_flight, snapshot.node_sets)


def reached(snapshot: Snapshot, policy: Policy) -> list[float]:
    """What the layers of a round with the program come to."""
    return [layer.value for layer in solve(snapshot, policy, optimise).certificate.layers]


def overfull(snapshot: Snapshot, plan: Plan) -> list[tuple[NodeName, str]]:
    """Nodes of which more is held than they have, and more since this plan, with what of."""
    shapes = {(job.name, group.name): group.shape for job in snapshot.jobs for group in job.spec.task_groups}
    held = [(job.name, task) for job in snapshot.jobs for task in job.placement]
    more = [(step.job, task) for step in plan.steps if isinstance(step, Bind | Grow) for task in step.tasks]
    used, given = Counter[tuple[NodeName, str]](), Counter[tuple[NodeName, str]]()
    for to, tasks in ((used, [*held, *more]), (given, more)):
        for name, task in tasks:
            to.update({(task.node, what): amount for what, amount in shapes[name, task.group].resources.items()})
    has = {node.name: node.resources for node in snapshot.nodes}
    return [(node, what) for node, what in given if used[node, what] > has[node].get(what, unsaid(what))]
