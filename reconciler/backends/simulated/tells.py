"""Tells simulated tasks what their gangs are told: late, in any order, and each task at most once of each number."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from reconciler.protocols.backend import TellGang
from solver.model.document import Document
from solver.model.quantities import Instant
from solver.model.workload import JobName

if TYPE_CHECKING:
    from reconciler.backends.simulated.cluster import SimulatedCluster


class Telling(Document, frozen=True):
    """One life of a task, which came with `growth`, was told `number`; or had saved its work because of it."""

    job: JobName
    attempt: int
    group: str
    index: int
    growth: int
    number: int
    at: Instant


class SimulatedTells:
    """What the gangs of one cluster were told. It remembers all of it; an order that is older than the newest changes nothing."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.heard: list[Telling] = []
        self.saved: list[Telling] = []
        """By tasks whose behaviour `saves`, at the end of the saving."""
        self._cluster = cluster
        self._orders: dict[tuple[JobName, int], list[tuple[TellGang, int]]] = {}
        self._told: dict[int, int] = {}

    def accept(self, order: TellGang, growth: int, at: Instant) -> None:
        """An order has come to an attempt that had grown so often by then; its effect follows."""
        known = self._orders.setdefault((order.job, order.attempt), [])
        if known and known[-1][0].number >= order.number:
            return
        known.append((order, growth))
        for number, task in enumerate(self._cluster.intervals):
            if (task.job, task.attempt) == (order.job, order.attempt):
                then = self._cluster.soon(at)
                self._cluster.schedule(then, lambda then, number=number: self._tell(number, order, then))  # type: ignore[misc]

    def begin(self, number: int, at: Instant) -> None:
        """A task begins late, and is told what came for it before."""
        task = self._cluster.intervals[number]
        for order, growth in self._orders.get((task.job, task.attempt), []):
            if task.growth <= growth:
                self._tell(number, order, at)

    def _tell(self, number: int, order: TellGang, at: Instant) -> None:
        task = self._cluster.intervals[number]
        if task.end is not None or self._told.get(number, 0) >= order.number:
            return
        self._told[number] = order.number
        telling = Telling(task.job, task.attempt, task.group, task.index, task.growth, order.number, at)
        self.heard.append(telling)
        self._cluster.say(number, at, told=order.number)
        saves = self._cluster.behaviour_of(number).saves
        if saves is not None and order.reason != "dump":
            self._cluster.schedule(at.after(saves), lambda then: self._has_saved(number, telling, then))

    def _has_saved(self, number: int, telling: Telling, at: Instant) -> None:
        """It goes on afterwards; one that has ended meanwhile has saved nothing."""
        if self._cluster.intervals[number].end is None:
            self.saved.append(msgspec.structs.replace(telling, at=at))
