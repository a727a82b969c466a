"""Who can't be spared among victims, by counting: without it too few tasks of the taker would fit, wherever they might go."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from solver.rules.victims import Victim
from solver.trial import Trial, Wish, leave
from solver.world.cluster import DeviceId
from solver.world.room import Room
from solver.world.shape import MigShape, SharedShape


class Scarcity:
    """Of a taker that is one group of tasks with whole GPUs; of others nothing is known.

    What counting says is certain: topology, quota and everything else can only make it worse. `room` is as it is once all victims
    have left.
    """

    def __init__(self, wish: Wish, room: Room) -> None:
        self._room = room
        self._gpus = 0
        groups, shape = wish.candidate.job.spec.task_groups, wish.option.shapes[0]
        if len(groups) > 1 or wish.drains or isinstance(shape, SharedShape | MigShape) or not shape.gpus:
            return
        self._gpus = shape.gpus
        self._slots = room.slots(shape, wish.option.gpu_types[0])
        self._spare = int(self._slots.sum()) - groups[0].least

    @classmethod
    def of(cls, found: Trial, room: Room) -> Scarcity:
        """Where these victims have left a room beside."""
        left = room.copy()
        for victim in found.victims:
            leave(left, victim.holder.job)
        return cls(found.wish, left)

    def needs(self, victim: Victim, *parts: Victim) -> bool:
        """Without this victim, and what would leave with it, fewer tasks would fit than have to."""
        return bool(self._gpus) and self._lost((victim, *parts)) > self._spare

    def _lost(self, victims: Sequence[Victim]) -> int:
        """How many tasks fewer would fit at least; CPU and memory, which would also be missing, are not counted."""
        free = self._room.free_devices
        lost = 0
        for node, held in _by_node(self._room, victims):
            left = len(set(free[node]) - held) // self._gpus
            lost += max(0, int(self._slots[node]) - left)
        return lost


def _by_node(room: Room, victims: Iterable[Victim]) -> Iterable[tuple[int, set[DeviceId]]]:
    """The devices of victims on each node that is known; those of which they have a part are not counted."""
    found: dict[int, set[DeviceId]] = defaultdict(set)
    for victim in victims:
        for task in victim.holder.job.placement:
            node = room.index.get(task.node)
            if node is not None and task.share is None:
                found[node] |= set(task.devices)
    return found.items()
