"""What a round promises to a job: devices that others will leave, and who has to leave, or to move, for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from solver.moving import Move
from solver.rules.victims import Victim
from solver.starts import Start
from solver.world.parts import owner_of
from solver.world.workload import Job, JobName

Tier = Literal["entitled", "fair"]
"""For which demand others may have to leave: inside a guarantee, or inside a fair share."""


@dataclass(frozen=True, slots=True)
class Promise:
    """A taker on the devices that it will have, and who leaves or moves for it; nobody, where it waits for what leaves anyway."""

    start: Start
    victims: tuple[Victim, ...]
    tier: Tier
    moves: tuple[Move, ...] = ()

    @property
    def job(self) -> Job:
        """The taker."""
        return self.start.candidate.job

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
