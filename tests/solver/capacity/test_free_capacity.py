"""The room of a snapshot, filled at once, is what is left when every task takes its own one after the other."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from solver.capacity.free_capacity import FreeCapacity
from solver.capacity.partitioning import pool_rules
from solver.capacity.sharing import sharing_of
from solver.model.quantities import Instant
from solver.model.shape import Shape
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import QueueName, TaskPlacement
from solver.policy.division import MigChanges
from solver.policy.policy import Policy, Queue, policy_of
from solver.policy.tree import QueueTree
from solver.round.solve import solve
from tests.drawn import worlds
from tests.solver.aftermath import applied
from tests.solver.capacity.test_offers import state
from tests.solver.round.test_mig import FREE, THREE, partitioned
from tests.solver.worlds import node


def room_of(snapshot: Snapshot, policy: Policy) -> FreeCapacity:
    """What is free in a world."""
    domain_of = sharing_of(policy, QueueTree.of(policy), snapshot.nodes).domain
    return FreeCapacity.of(snapshot, domain_of, pool_rules(policy, snapshot))


def in_mig_mode(snapshot: Snapshot) -> Snapshot:
    """The same with all GPUs in MIG mode, even those that somebody has as a whole."""
    nodes = (
        msgspec.structs.replace(
            node, gpus=tuple(msgspec.structs.replace(gpu, instances=gpu.instances or ()) for gpu in node.gpus)
        )
        for node in snapshot.nodes
    )
    return msgspec.structs.replace(snapshot, nodes=tuple(nodes))


@worlds(400)
@given(partitioned(), st.booleans())
def test_a_room_is_what_is_left_when_every_task_takes_its_own(
    world: tuple[Snapshot, Policy], all_in_mode: bool
) -> None:
    snapshot, policy = world
    running = applied(snapshot, solve(snapshot, policy, None))
    running = in_mig_mode(running) if all_in_mode else running
    one_by_one = room_of(msgspec.structs.replace(running, jobs=()), policy)
    for job in running.jobs:
        shapes = {group.name: group.shape for group in job.spec.task_groups}
        one_by_one.occupy(((task, shapes[task.group]) for task in job.placement), is_new=False)
        for task in job.placement:
            event("instance" if task.mig else "whole in MIG mode" if all_in_mode and task.devices else "whole, or none")
    assert state(room_of(running, policy)) == state(one_by_one)


@pytest.mark.parametrize(("most", "wanted", "free"), [(1, 1, True), (1, 2, False), (2, 2, True)])
def test_as_many_gpus_can_be_had_whole_as_changes_are_left_for_all_of_them(most: int, wanted: int, free: bool) -> None:
    made = node("n1", 2)
    gpus = tuple(msgspec.structs.replace(gpu, instances=(THREE,)) for gpu in made.gpus)
    snapshot = snapshot_of(Instant(0), [msgspec.structs.replace(made, gpus=gpus)], [])
    policy = policy_of((Queue(QueueName("a")),), mig=(msgspec.structs.replace(FREE, changes=MigChanges(most)),))
    task = TaskPlacement("worker", 0, made.name, tuple(gpu.id for gpu in gpus[:wanted]))
    assert room_of(snapshot, policy).has_free([(task, Shape(wanted))]) is free
