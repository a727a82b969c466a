"""What a round takes over from the one before it: results of pure functions, beside all that they were worked out from.

A result is handed out again only where everything it depends on is equal to what it was; so a round decides the same with what is
kept as without, whatever was decided with it before. Whoever decides rounds makes a `Kept` and hands it to each.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

import msgspec

from solver.world.cluster import Node
from solver.world.snapshot import Snapshot
from solver.world.workload import Job, JobName

Value = TypeVar("Value")


class Results(Generic[Value]):
    """Results of one kind that were all worked out from the same `basis`, each from this and from its key, or a job."""

    def __init__(self, basis: tuple[object, ...], before: Results[Value] | None = None) -> None:
        """`before`: those of the round before, of the same basis."""
        self.basis = basis
        self._before = before._now if before else {}
        self._now: dict[Hashable, tuple[object, Value]] = {}

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """What `make` returns for the key; it may depend on nothing but the key and the basis."""
        return self._of(key, None, make)

    def of(self, job: Job, make: Callable[[], Value], *, which: Hashable = None) -> Value:
        """What `make` returns for a job; it may depend on nothing but the job, `which`, and the basis."""
        return self._of((job.name, which), job, make)

    def _of(self, key: Hashable, of: object, make: Callable[[], Value]) -> Value:
        found = self._now.get(key) or self._before.get(key)
        if found is None or found[0] is not of:
            found = of, make()
        self._now[key] = found
        return found[1]


class Kept:
    """Results of the latest round, by kind, and none that it did not ask for. The next round may be of another world."""

    def __init__(self) -> None:
        self._before: dict[str, Results[Any]] = {}
        self._now: dict[str, Results[Any]] = {}
        self._nodes: tuple[Node, ...] = ()
        self._jobs: dict[JobName, Job] = {}

    def begin(self) -> None:
        """A round begins: what the latest did not ask for is forgotten."""
        self._before, self._now = self._now, {}

    def results(self, kind: str, *basis: object) -> Results[Any]:
        """Those of a kind, worked out from this basis."""
        known = self._now.get(kind)
        if known is None or known.basis != basis:
            before = self._before.get(kind)
            known = self._now[kind] = Results(basis, before if before is not None and before.basis == basis else None)
        return known

    def settled(self, snapshot: Snapshot) -> Snapshot:
        """An equal snapshot: what is equal to a part of the latest round's is the very same, and so is told at a glance."""
        if snapshot.nodes == self._nodes:
            snapshot = msgspec.structs.replace(snapshot, nodes=self._nodes)
        known = self._jobs
        jobs = tuple([before if (before := known.get(job.name, job)) == job else job for job in snapshot.jobs])
        self._nodes, self._jobs = snapshot.nodes, {job.name: job for job in jobs}
        return msgspec.structs.replace(snapshot, jobs=jobs)
