"""How GPUs are partitioned once it is settled which jobs start and grow: a step for each GPU that has to change for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from solver.backfill.nominations import Nomination
from solver.backfill.pledges import geometries
from solver.capacity.free_capacity import FreeCapacity
from solver.model.cluster import DeviceId, MigInstance, NodeName
from solver.model.mig import Geometry
from solver.model.pledges import beside
from solver.model.shape import Shape
from solver.model.workload import TaskPlacement
from solver.plan.plan import Repartition
from solver.preemption.new_nomination import NewNomination
from solver.round.regrowth import GangGrowth
from solver.round.tiers import Decision


def repartitions(decision: Decision, grown: Sequence[GangGrowth]) -> Iterator[Repartition]:
    """From the room before the starts. GPUs that do not change have no step.

    What is promised, and there, stays: an instance, that is; a GPU that is promised as a whole is so already.
    """
    room = decision.room
    if not room.partitions:
        return
    after = room.copy()
    for held in (*(start.held for start in decision.starts), *map(_there, decision.promises)):
        after.occupy(held)
    for growth in grown:
        after.occupy(growth.held)
    yield from changes_between(room, after)


def changes_between(room: FreeCapacity, after: FreeCapacity) -> Iterator[Repartition]:
    """What has to change for the GPUs of a room to be as they are in a later one."""
    for changed in room.partitions.repartitioned(after.partitions):
        yield _step(room.nodes[changed.node].name, changed.device, changed.before, changed.after)


def kept_promises(room: FreeCapacity, ready: Iterable[Nomination]) -> Iterator[Repartition]:
    """The GPUs that were promised to jobs that are bound now, and that others had to leave first."""
    for nomination in ready:
        for node, gpu, after in geometries(room, nomination.intent, nomination.pledged):
            if gpu.before != after:
                yield _step(node, gpu.device, gpu.before, after)


def _there(promise: NewNomination) -> Iterator[tuple[TaskPlacement, Shape]]:
    """The instances that are promised and there already."""
    held = ((beside(task, promise.pledged), shape) for task, shape in promise.start.held)
    return ((task, shape) for task, shape in held if task.mig)


def _step(node: NodeName, device: DeviceId, before: Geometry | None, after: Geometry | None) -> Repartition:
    gone = sorted(set(before or ()) - set(after or ()), key=lambda placed: placed.start)
    return Repartition(node, device, None if after is None else _instances(after), _instances(tuple(gone)))


def _instances(geometry: Geometry) -> tuple[MigInstance, ...]:
    return tuple(MigInstance(placed.profile.name, placed.start) for placed in geometry)
