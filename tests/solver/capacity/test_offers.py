"""What a room keeps of what it offers is what a new count finds, whatever is placed, given back, tried and undone."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.capacity import offers
from solver.capacity.free_capacity import NO_DOMAIN, FreeCapacity
from solver.capacity.partitioning import pool_rules
from solver.capacity.sharing import sharing_of
from solver.model.cluster import LEVELS, Level, MigInstance
from solver.model.quantities import Instant
from solver.model.shape import MigShape, Shape
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import JobSpec, QueueName, TaskGroup, TaskPlacement
from solver.placement.placement import has_place, place
from solver.placement.starts import held_by
from solver.policy.division import MigGeometry
from solver.policy.policy import Policy, policy_of
from solver.quota.options import Option
from solver.round.solve import standing
from tests.drawn import worlds
from tests.solver.round.test_mig import partitioned
from tests.solver.worlds import node, policies, sharing_policies, snapshots, with_fractions, with_sets

WORLDS = st.one_of(
    st.tuples(snapshots(elastic=True, close=True).flatmap(with_sets), policies()),
    st.tuples(snapshots().flatmap(with_fractions), policies().flatmap(sharing_policies)),
    partitioned(),
)
Held = list[tuple[TaskPlacement, Shape]]


def room_in(snapshot: Snapshot, policy: Policy) -> tuple[FreeCapacity, list[tuple[JobSpec, Option]]]:
    """What is free in a world, and the ways in which its pending jobs could be served."""
    shares, admissions = standing(snapshot, policy)
    domain_of = sharing_of(policy, shares.tree, snapshot.nodes).domain
    ways = [(job.spec, option) for job in snapshot.pending for option in admissions[job.name].options]
    return FreeCapacity.of(snapshot, domain_of, pool_rules(policy, snapshot)), ways


def offered(room: FreeCapacity, ways: list[tuple[JobSpec, Option]]) -> list[object]:
    """All that a room says it offers for these."""
    found: list[object] = []
    asked = {known for _, option in ways for known in zip(option.shapes, option.gpu_types, strict=True)}
    for shape, gpu_type in sorted(asked, key=repr):
        for fresh in (False, True):
            offer = room.offer(shape, gpu_type, fresh=fresh)
            found += [offer.slots.tolist(), offer.total, [offer.in_domains(level).tolist() for level in LEVELS]]
    return found


def counted_anew(room: FreeCapacity) -> FreeCapacity:
    """The same room, of which nothing is kept."""
    return replace(room)


def state(room: FreeCapacity) -> object:
    """All that is free in a room."""
    parts = room.partitions
    free = [known.tolist() for known in (room.free_gpus, room.free_cpu, room.free_memory)]
    return free, room.free_devices[:], dict(room.shared), dict(parts.gpus), dict(parts.changes_left), dict(parts.aside)


def act(
    draw: st.DataObject, room: FreeCapacity, ways: list[tuple[JobSpec, Option]], held: Held, depth: int = 0
) -> None:
    """Place something, give something back, or try some of that and undo it; each time all that is kept must be true."""
    for _ in range(draw.draw(st.integers(1, 4))):
        match draw.draw(st.sampled_from(["place", "place", "give back", "try", "copy"])):
            case "place":
                spec, option = draw.draw(st.sampled_from(ways))
                could = has_place(room, spec, option)
                placed = place(room, spec, option)
                assert could == (placed is not None)
                held += held_by(spec, option, placed.tasks) if placed else ()
            case "give back" if held:
                room.give_back(*held.pop(draw.draw(st.integers(0, len(held) - 1))))
            case "try" if depth < 2:
                before = state(room)
                with room.trying():
                    act(draw, room, ways, held.copy(), depth + 1)
                assert state(room) == before
            case "copy" if depth < 2:
                act(draw, room.copy(), ways, held.copy(), depth + 1)
        if draw.draw(st.booleans()):  # what is asked for seldom has more to catch up with
            assert offered(room, ways) == offered(counted_anew(room), ways)


@worlds(300)
@given(WORLDS, st.data(), st.sampled_from([(0, 1, 0), (0, 128, 2), (8, 128, 9)]))
def test_what_is_kept_is_what_a_new_count_finds(
    world: tuple[Snapshot, Policy], draw: st.DataObject, limits: tuple[int, int, int]
) -> None:
    room, ways = room_in(*world)
    shapes = {(job.name, group.name): group.shape for job in world[0].jobs for group in job.spec.task_groups}
    running = [(task, shapes[job.name, task.group]) for job in world[0].jobs for task in job.placement]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(offers, "ONE_BY_ONE_MAX", limits[0])
        patch.setattr(offers, "KEPT_MAX", limits[1])
        patch.setattr(offers, "BEHIND_MAX", limits[2])
        if ways:
            act(draw, room, ways, running)
            assert offered(room, ways) == offered(counted_anew(room), ways)


@worlds(300)
@given(partitioned())
def test_what_is_kept_follows_what_may_be_partitioned_once_others_have_left(world: tuple[Snapshot, Policy]) -> None:
    room, ways = room_in(*world)
    for spec, option in ways:
        place(room, spec, option)
    before = (state(room), offered(room, ways))
    with room.trying() as now:
        room.partition_as(room.partitions.draining(now))
        assert offered(room, ways) == offered(counted_anew(room), ways)
    assert (state(room), offered(room, ways)) == before


def test_what_could_be_made_whole_is_not_taken_for_what_instances_could_have() -> None:
    """A task of one GPU, and milli-GPU of GPUs with instances, are counted on the same nodes in different ways."""
    bare, apart = node("n0", 1), node("n1", 1)
    gpus = tuple(msgspec.structs.replace(gpu, instances=(MigInstance("3g.40gb", 0),)) for gpu in apart.gpus)
    world = snapshot_of(Instant(0), [bare, msgspec.structs.replace(apart, gpus=gpus, pool="apart")], [])
    parts = MigGeometry("parts", "apart", "free", "H100-80GB")
    room = FreeCapacity.of(world, lambda *_: NO_DOMAIN, pool_rules(policy_of((), mig=(parts,)), world))
    assert room.offer(Shape(1), None).slots.tolist() == [1, 1]
    assert room.milli_free((MigShape(),)).tolist() == [1000, 1000]
    room.take(0, Shape(1), 1)
    assert room.milli_free((MigShape(),)).tolist() == [0, 1000]


@worlds(300)
@given(st.lists(st.sampled_from(["take", "give back", "try"]), max_size=12), st.data())
def test_too_little_is_too_little_only_until_something_is_given_back(steps: list[str], draw: st.DataObject) -> None:
    """Two racks of two nodes with 2 GPUs each; what is tried is one of the other steps, and undone."""
    room = FreeCapacity.empty(tuple(node(f"n{number}", 2, rack=f"r{number // 2}") for number in range(4)))
    held: Held = []

    def act(step: str, held: Held) -> None:
        free = [number for number in range(4) if room.free_gpus[number]]
        if step == "take" and free:
            number = draw.draw(st.sampled_from(free))
            ((device,),) = room.take(number, Shape(1), 1)
            held.append((TaskPlacement("worker", 0, room.nodes[number].name, (device,)), Shape(1)))
        elif step == "give back" and held:
            room.give_back(*held.pop(draw.draw(st.integers(0, len(held) - 1))))
        # The most first: what finds enough has caught up with all changes.
        asked: list[tuple[int, Level | None]] = [(8, None), (4, "rack"), (3, "rack"), (1, None)]
        for tasks, level in asked:
            expected = counted_anew(room).has_slots(Shape(1), None, tasks, level)
            assert room.has_slots(Shape(1), None, tasks, level) == expected

    for step in steps:
        if step == "try":
            with room.trying():
                for tried in draw.draw(st.lists(st.sampled_from(["take", "give back"]), max_size=3)):
                    act(tried, held.copy())
        act(step, held)


@worlds(480)
@given(
    st.lists(
        st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(0, 1), st.integers(0, 8)), min_size=1, max_size=12
    ),
    st.sampled_from([1, 2, 3, 4, 8]),
    st.integers(1, 9),
)
def test_nodes_are_taken_as_if_all_had_been_sorted(
    where: list[tuple[int, int, int, int]], gpus: int, tasks: int
) -> None:
    """`where`: block, rack and island of each node, and how many of its GPUs are free. What ties is in the order of nodes."""
    domains = [(f"{block}", f"{block}{rack}", f"{block}{rack}{island}") for block, rack, island, _ in where]
    nodes = [
        msgspec.structs.replace(node(f"n{number:02}", 8, block=block, rack=rack), island=island)
        for number, (block, rack, island) in enumerate(domains)
    ]
    room = FreeCapacity.empty(tuple(nodes))
    for known, (*_, free) in zip(nodes, where, strict=True):
        devices = tuple(gpu.id for gpu in known.gpus[free:])
        room.occupy([(TaskPlacement("other", 0, known.name, devices), Shape(8 - free))])
    slots = [free // gpus for *_, free in where]

    def rank(of_node: list[str], number: int) -> tuple[bool, int, int]:
        fits = sum(count for name, count in zip(of_node, slots, strict=True) if name == of_node[number])
        return fits < tasks, fits if fits >= tasks else -fits, of_node.index(of_node[number])

    levels = [list(names) for names in zip(*domains, strict=True)]
    order = sorted(range(len(nodes)), key=lambda n: (*(rank(names, n) for names in levels), where[n][3], n))
    wanted = [nodes[number].name for number in order for _ in range(slots[number])]
    spec = JobSpec(QueueName("q"), (TaskGroup("worker", tasks, Shape(gpus)),))
    placed = place(room, spec, Option((nodes[0].gpu_type,), 0, (0.0,), (Shape(gpus),), {}, {}))
    if placed is None:
        assert len(wanted) < tasks
    else:
        assert [task.node for task in placed.tasks] == wanted[:tasks]
