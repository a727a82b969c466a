"""Clocks that somebody sets, and that run too fast or too slowly: those of control planes, and those of nodes."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

import msgspec

from hack.watched_backend import OrdersPassedOn
from reconciler.model.clock import Clock
from reconciler.protocols.backend import Activity, Backend, BackendChanges, Cursor, TaskStatus
from reconciler.store.store import SqlStore
from solver.model.cluster import NodeName
from solver.model.document import Document
from solver.model.quantities import Instant

STEP_MS: Final = 3_600_000
SPEEDS: Final = (0.5, 1.0, 1.0, 2.0)
"""At which nodes' clocks run once they were set: every other one is right in that."""

D = TypeVar("D", bound=Document)


@dataclass
class SteppedClock:
    """Implements Clock: of one machine, which somebody may set, and which then runs at a speed of its own."""

    true: Clock
    ahead: int = 0
    speed: float = 1.0
    set_at: Instant = Instant(0)  # noqa: RUF009  (an int: can't be changed)

    def now(self) -> Instant:
        """As the machine has it."""
        return self.told(self.true.now())

    def told(self, at: Instant) -> Instant:
        """What it said, or would have, at an instant: one before it was set is told as if it had been so then."""
        gained = int((at - self.set_at) * (self.speed - 1)) if self.set_at else 0
        return at.after(self.ahead + gained)

    def monotonic_s(self) -> float:
        """Nobody sets that."""
        return self.true.monotonic_s()


def share_its_clock(store: SqlStore, true: Clock) -> None:
    """The store is on a machine of its own, the clock of which is right: as PostgreSQL, it tells it when it is asked."""
    database: Any = store.database

    def now(*_: object) -> Instant:
        database.told_time(true.now(), 0.0)
        return true.now()

    database.lease_clock, database.now, database.time = "database", now, true.now


class ClocksOfNodes(OrdersPassedOn):
    """Implements Backend over another: what nodes tell has their own clocks' times."""

    def __init__(self, real: Backend, clocks: Mapping[NodeName, SteppedClock]) -> None:
        super().__init__(real)
        self._clocks = clocks

    def set_one(self, chance: random.Random) -> None:
        """Somebody sets the clock of one node, or sets it right."""
        clock = self._clocks[chance.choice(sorted(self._clocks))]
        clock.ahead, clock.speed = chance.choice((-STEP_MS, 0, STEP_MS)), chance.choice(SPEEDS)
        clock.set_at = clock.true.now()

    def set_right(self) -> None:
        """All of them."""
        for clock in self._clocks.values():
            clock.ahead, clock.speed = 0, 1.0

    def changes(self, since: Cursor) -> BackendChanges:
        """What nodes tell, with their times."""
        told = self._real.changes(since)
        return msgspec.structs.replace(told, tasks=tuple(self._task(task) for task in told.tasks))

    def _task(self, task: TaskStatus) -> TaskStatus:
        clock = self._clocks[task.node]
        if not clock.ahead and clock.speed == 1.0:
            return task
        return msgspec.structs.replace(
            task,
            at=clock.told(task.at),
            activity=_told(clock, task.activity, tuple(Activity.__struct_fields__)),
            progress=_told(clock, task.progress, ("at",)),
        )


def _told(clock: SteppedClock, document: D | None, instants: tuple[str, ...]) -> D | None:
    if document is None:
        return None
    known = {name: getattr(document, name) for name in instants}
    times = {name: clock.told(cast("Instant", at)) for name, at in known.items() if at is not None}
    return msgspec.structs.replace(document, **times)
