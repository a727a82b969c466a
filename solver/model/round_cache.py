"""What a round takes over from the one before it: results of pure functions, beside all that they were worked out from.

A result is handed out again only where everything it depends on is equal to what it was; so a round decides the same with what is
kept as without, whatever was decided with it before. A caller that decides rounds makes a `RoundCache` and hands it to each.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

import msgspec

from solver.model.cluster import Node
from solver.model.snapshot import Snapshot
from solver.model.workload import Job

Value = TypeVar("Value")
Named = TypeVar("Named", Node, Job)


class CachedResults(Generic[Value]):
    """Results of one kind that were all worked out from the same `basis`: each from this, its key, and what is kept beside it."""

    def __init__(self, basis: tuple[object, ...], before: CachedResults[Value] | None = None) -> None:
        """`before`: those of the round before, of the same basis."""
        self.basis = basis
        self._before = before._now if before else {}
        self._now: dict[Hashable, tuple[tuple[object, ...], Value]] = {}

    def get(self, key: Hashable, make: Callable[[], Value], *of: object) -> Value:
        """What `make` returns; it may depend on nothing but the key, what it is `of`, and the basis."""
        found = self.known(key, *of)
        return self.keep(key, make(), *of) if found is None else found

    def known(self, key: Hashable, *of: object) -> Value | None:
        """What is kept under a key, if it is of this; else None."""
        found = self._now.get(key) or self._before.get(key)
        if found is None or found[0] != of:
            return None
        self._now[key] = found
        return found[1]

    def keep(self, key: Hashable, value: Value, *of: object) -> Value:
        """Keep a value that depends on nothing but the key, what it is `of`, and the basis."""
        self._now[key] = of, value
        return value


class RoundCache:
    """Results of the latest round, by kind, and none that it did not ask for; and what lasts.

    The next round may be of another world.
    """

    def __init__(self) -> None:
        self._before: dict[str, CachedResults[Any]] = {}
        self._now: dict[str, CachedResults[Any]] = {}
        self._lasting: dict[str, Any] = {}
        self._nodes: tuple[Node, ...] = ()
        self._jobs: tuple[Job, ...] = ()

    def begin(self) -> None:
        """A round begins: what the latest did not ask for is forgotten."""
        self._before, self._now = self._now, {}

    def results(self, kind: str, *basis: object) -> CachedResults[Any]:
        """Those of a kind, worked out from this basis."""
        known = self._now.get(kind)
        if known is None or known.basis != basis:
            before = self._before.get(kind)
            known = self._now[kind] = CachedResults(
                basis, before if before is not None and before.basis == basis else None
            )
        return known

    def lasting(self, kind: str, make: Callable[[], Value]) -> Value:
        """The one object of a kind that is carried on from round to round.

        It brings itself up to date with whatever world it is asked of, and then says the same as one that was just made.
        """
        if kind not in self._lasting:
            self._lasting[kind] = make()
        found: Value = self._lasting[kind]
        return found

    def settled(self, snapshot: Snapshot) -> Snapshot:
        """An equal snapshot: what is equal to a part of the latest round's is the very same, and so is told at a glance."""
        nodes, jobs = _settled(snapshot.nodes, self._nodes), _settled(snapshot.jobs, self._jobs)
        self._nodes, self._jobs = nodes, jobs
        return msgspec.structs.replace(snapshot, nodes=nodes, jobs=jobs)


def _settled(found: tuple[Named, ...], before: tuple[Named, ...]) -> tuple[Named, ...]:
    known = {one.name: one for one in before}
    settled = tuple([one if (other := known.get(one.name)) is None or other != one else other for one in found])
    return before if settled == before else settled
