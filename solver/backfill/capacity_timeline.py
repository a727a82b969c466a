"""What is free at each instant to come: a state is played up to the instant asked for, since all of them would fill memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from solver.backfill.future_state import FutureState
from solver.capacity.free_capacity import FreeCapacity
from solver.model.quantities import Instant


@dataclass(slots=True)
class _Playing:
    """A copy of a state, `now` at an instant, with those to come."""

    world: FutureState
    now: Instant
    to_come: Iterator[Instant]


@dataclass(slots=True)
class CapacityTimeline:
    """What is free at instants to come; the state itself stays at `now`. `until`, `stops`: as in `FutureState.instants`."""

    world: FutureState
    now: Instant
    until: Instant
    stops: Sequence[Instant]
    _playing: _Playing | None = None

    def at(self, instant: Instant) -> FreeCapacity:
        """What is free from now on, or from one of the instants at which something ends; not to be changed outside.

        Asked for in order they cost one playing through; from an earlier one on it is played again.
        """
        playing = self._playing
        if playing is None or instant < playing.now:
            world = self.world.copy()
            playing = self._playing = _Playing(world, self.now, world.instants(self.until, self.stops))
        while playing.now < instant:
            playing.now = next(playing.to_come)
        return playing.world.room
