"""How GPUs are partitioned once it is settled who starts and who grows: a step for each GPU that has to change for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from solver.plan.plan import Repartition
from solver.regrowth import Growth
from solver.starts import Start
from solver.world.cluster import MigInstance
from solver.world.mig import Geometry
from solver.world.room import Room


def repartitions(room: Room, starts: Sequence[Start], grown: Sequence[Growth]) -> Iterator[Repartition]:
    """From the room before the starts, those among them that are only promised. GPUs that do not change have no step."""
    if not room.partitions:
        return
    after = room.copy()
    for held in (*(start.held for start in starts), *(growth.held for growth in grown)):
        after.occupy(held)
    for changed in room.partitions.repartitioned(after.partitions):
        gone = set(changed.before or ()) - set(changed.after or ())
        yield Repartition(
            room.nodes[changed.node].name,
            changed.device,
            None if changed.after is None else _instances(changed.after),
            _instances(tuple(sorted(gone, key=lambda placed: placed.start))),
        )


def _instances(geometry: Geometry) -> tuple[MigInstance, ...]:
    return tuple(MigInstance(placed.profile.name, placed.start) for placed in geometry)
