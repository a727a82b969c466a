"""Numbers what is known, so that each reader of the backend gets what changed after its cursor."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

import msgspec

from reconciler.backends.baremetal.agent_state import key_of
from reconciler.protocols.backend import BackendChanges, Cursor
from solver.model.document import Document
from solver.model.quantities import Instant

# A cursor of an earlier process lies below all of a later one, if its clock does: a reader with an old one gets everything again.
_CHANGES_PER_MS_BITS = 20


class ReportLog:
    """The latest of each thing, with the number of the change that made it so."""

    def __init__(self, began: Instant) -> None:
        self._newest = int(began) << _CHANGES_PER_MS_BITS
        self._known: dict[Hashable, tuple[int, Document]] = {}

    def after(self, known: BackendChanges, cursor: Cursor) -> BackendChanges:
        """Of everything that is known now, what is new since a cursor."""
        now: dict[Hashable, tuple[int, Document]] = {}
        for key, thing in _things(known):
            before = self._known.get(key)
            now[key] = before if before is not None and before[1] == thing else (self._next(), thing)
        self._known = now
        if not cursor:
            return msgspec.structs.replace(known, cursor=Cursor(self._newest))
        new = {key for key, (number, _) in now.items() if number > cursor}
        return BackendChanges(
            Cursor(self._newest),
            nodes=tuple(node for node in known.nodes if ("node", node.name) in new),
            tasks=tuple(task for task in known.tasks if ("task", key_of(task)) in new),
            stopped=tuple(done for done in known.stopped if ("stopped", done.job, done.attempt) in new),
            left=tuple(gone for gone in known.left if ("left", key_of(gone)) in new),
            partitioned=tuple(done for done in known.partitioned if ("partitioned", done.device) in new),
            facts=tuple(facts for facts in known.facts if ("facts", facts.node) in new),
        )

    def _next(self) -> int:
        self._newest += 1
        return self._newest


def _things(known: BackendChanges) -> Iterator[tuple[Hashable, Document]]:
    yield from ((("node", node.name), node) for node in known.nodes)
    yield from ((("task", key_of(task)), task) for task in known.tasks)
    yield from ((("stopped", done.job, done.attempt), done) for done in known.stopped)
    yield from ((("left", key_of(gone)), gone) for gone in known.left)
    yield from ((("partitioned", done.device), done) for done in known.partitioned)
    yield from ((("facts", facts.node), facts) for facts in known.facts)
