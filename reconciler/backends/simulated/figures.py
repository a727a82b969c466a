"""Lets simulated tasks say how far they are, and end where they have more memory than their shape asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.protocols.backend import MemoryUse, Progress
from solver.model.quantities import Duration, Instant, Memory

if TYPE_CHECKING:
    from reconciler.backends.simulated.cluster import SimulatedCluster

EVERY = Duration(1_000)
OUT_OF_MEMORY_CODE = 137
"""As after SIGKILL."""


class SimulatedFigures:
    """Progress and memory of the tasks of one cluster, as their behaviours say."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster

    def begin(self, number: int, limit: Memory, at: Instant) -> None:
        """A task begins whose shape asks for so much memory."""
        behaviour = self._cluster.behaviour_of(number)
        if behaviour.memory:
            self._cluster.schedule(at.after(EVERY), lambda then: self._measure(number, limit, then))
        if behaviour.rate:
            self._cluster.schedule(at.after(EVERY), lambda then: self._count(number, then))

    def _measure(self, number: int, limit: Memory, at: Instant) -> None:
        if self._cluster.intervals[number].end is not None:
            return
        peak = self._cluster.behaviour_of(number).memory
        exceeded = 0 < limit < peak
        self._cluster.say(number, at, memory=MemoryUse(peak, limit, exceeded))
        if exceeded:
            detail = f"used {peak} of {limit} memory, and was ended for it"
            self._cluster.end(number, "failed", at, OUT_OF_MEMORY_CODE, detail)

    def _count(self, number: int, at: Instant) -> None:
        task = self._cluster.intervals[number]
        if task.end is not None:
            return
        behaviour = self._cluster.behaviour_of(number)
        rate = behaviour.rate * self._cluster.pace.get(task.node, 1.0)
        if behaviour.hangs is not None and at - task.begin > behaviour.hangs:
            return
        self._cluster.say(number, at, progress=Progress(int(rate * Duration(at - task.begin).seconds), rate, at))
        self._cluster.schedule(at.after(EVERY), lambda then: self._count(number, then))
