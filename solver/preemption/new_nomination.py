"""A nomination made in this round: devices that running jobs will leave for a waiting one, and which jobs leave or move."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from solver.capacity.free_capacity import FreeCapacity
from solver.model.cluster import NodeName
from solver.model.parts import owner_of
from solver.model.pledges import NOTHING, Pledged
from solver.model.workload import Job, JobName
from solver.placement.starts import JobStart
from solver.preemption.consolidation import Move
from solver.quota.vacated import Tier
from solver.quota.victims import Victim


@dataclass(frozen=True, slots=True)
class NewNomination:
    """A preemptor on the devices it will have, and the jobs that leave or move for it: none if it waits for what leaves anyway.

    `pledged`: GPUs that are partitioned anew for it once they have left.
    """

    start: JobStart
    victims: tuple[Victim, ...]
    tier: Tier
    moves: tuple[Move, ...] = ()
    pledged: Pledged = NOTHING

    @property
    def job(self) -> Job:
        """The preemptor."""
        return self.start.candidate.job

    @property
    def nodes(self) -> frozenset[NodeName]:
        """Where it is promised something."""
        return frozenset(task.node for task in self.start.placed.tasks)

    @property
    def grows(self) -> bool:
        """It is a task by which a running gang grows."""
        return bool(self.start.candidate.sub_layer.growth)

    def take(self, room: FreeCapacity) -> None:
        """What is promised is nobody else's."""
        room.occupy(self.start.held)
        room.set_aside(self.pledged)
        for move in self.moves:
            room.occupy(move.held)

    @property
    def asked(self) -> Iterator[JobName]:
        """Who is asked to leave, in whole or in part, for good or to go on elsewhere."""
        yield from (owner_of(victim.name) for victim in self.victims)
        yield from (move.name for move in self.moves)

    @property
    def lost_gpu_s(self) -> Iterator[tuple[str, float]]:
        """GPU-seconds that are thrown away, each with the means."""
        yield from ((victim.means, victim.lost_gpu_s) for victim in self.victims)
        yield from (("move", move.mover.lost_gpu_s) for move in self.moves)
