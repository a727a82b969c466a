"""What is tried for a preemptor, and what it would get if certain jobs left."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from solver.capacity.free_capacity import FreeCapacity
from solver.model.pledges import NOTHING, Pledged
from solver.model.shape import Shape
from solver.model.workload import Job, TaskPlacement
from solver.placement.placement import PlacedGang
from solver.placement.starts import held_by
from solver.preemption.consolidation import Move
from solver.queueing.demand import StartCandidate
from solver.quota.options import Option
from solver.quota.vacated import Tier
from solver.quota.victims import Victim


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """A preemptor served in one of its ways. `drains`: on GPUs, too, that are partitioned anew once others have left them.

    `displaces`: though its queue holds more than its share, by lower work: that stands behind it, and gives way GPU for GPU.
    """

    candidate: StartCandidate
    option: Option
    tier: Tier
    drains: bool = False
    displaces: bool = False


@dataclass(frozen=True, slots=True)
class PreemptionResult:
    """What a preemptor would have if certain victims left, others moved, and the GPUs that are `pledged` were partitioned anew."""

    request: PlacementRequest
    victims: tuple[Victim, ...]
    placed: PlacedGang
    moves: tuple[Move, ...] = ()
    pledged: Pledged = NOTHING

    @property
    def held(self) -> Iterator[tuple[TaskPlacement, Shape]]:
        """The preemptor's tasks, each with what it takes."""
        return held_by(self.request.candidate.job.spec, self.request.option, self.placed.tasks)

    def uses_nodes_of(self, victim: Victim) -> bool:
        """Whether some of the preemptor's tasks run where the victim ran."""
        mine = {task.node for task in self.placed.tasks}
        return any(task.node in mine for task in victim.holder.job.placement)


def leave(room: FreeCapacity, job: Job) -> None:
    """The job gives back all that it holds."""
    shapes = {group.name: group.shape for group in job.spec.task_groups}
    for task in job.placement:
        room.give_back(task, shapes.get(task.group, Shape()))
