"""What differs between two snapshots of one cluster: what changed, and what is gone.

Snapshots that follow each other are alike in nearly everything. Whoever has the one before needs no more than this of the next.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from solver.model.cluster import Node, NodeName
from solver.model.document import Document
from solver.model.inflight import InFlight, Intent
from solver.model.node_sets import NodeSet
from solver.model.quantities import Instant
from solver.model.snapshot import Snapshot
from solver.model.workload import Job, JobName

Part = TypeVar("Part")
Key = TypeVar("Key", bound=Hashable)


class SnapshotPatch(Document, frozen=True):
    """One snapshot against the one before it: nodes, jobs and intents that are new or other than before, and those that are gone.

    `in_flight` and `node_sets`: as a whole where they differ, the former without its intents; None: as before.
    """

    time: Instant
    nodes: tuple[Node, ...] = ()
    gone_nodes: tuple[NodeName, ...] = ()
    jobs: tuple[Job, ...] = ()
    gone_jobs: tuple[JobName, ...] = ()
    intents: tuple[Intent, ...] = ()
    gone_intents: tuple[str, ...] = ()
    in_flight: InFlight | None = None
    node_sets: tuple[NodeSet, ...] | None = None


def patch_between(before: Snapshot, after: Snapshot) -> SnapshotPatch:
    """What makes the one snapshot of the other. Parts that are the very same objects cost no comparison."""
    nodes, gone_nodes = _differences(before.nodes, after.nodes, _name)
    jobs, gone_jobs = _differences(before.jobs, after.jobs, _name)
    intents, gone_intents = _differences(before.in_flight.intents, after.in_flight.intents, _id)
    beside = _without_intents(after.in_flight)
    return SnapshotPatch(
        after.time,
        *(nodes, gone_nodes, jobs, gone_jobs, intents, gone_intents),
        in_flight=None if beside == _without_intents(before.in_flight) else beside,
        node_sets=None if after.node_sets == before.node_sets else after.node_sets,
    )


def patched(before: Snapshot, patch: SnapshotPatch) -> Snapshot:
    """The snapshot after it; what did not change is the very same object. Raises ValueError for a patch of another snapshot."""
    beside = before.in_flight if patch.in_flight is None else patch.in_flight
    intents = _replaced(before.in_flight.intents, patch.intents, patch.gone_intents, _id)
    return msgspec.structs.replace(
        before,
        time=patch.time,
        nodes=_replaced(before.nodes, patch.nodes, patch.gone_nodes, _name),
        jobs=_replaced(before.jobs, patch.jobs, patch.gone_jobs, _name),
        in_flight=msgspec.structs.replace(beside, intents=intents),
        node_sets=before.node_sets if patch.node_sets is None else patch.node_sets,
    )


def _name(part: Any) -> Any:
    return part.name


def _id(part: Any) -> Any:
    return part.id


def _without_intents(in_flight: InFlight) -> InFlight:
    return msgspec.structs.replace(in_flight, intents=())


def _differences(
    before: Sequence[Part], after: Sequence[Part], key_of: Callable[[Part], Key]
) -> tuple[tuple[Part, ...], tuple[Key, ...]]:
    """What is new or other, and the keys of what is gone."""
    if before is after:
        return (), ()
    known = {key_of(part): part for part in before}
    changed = tuple([part for part in after if (was := known.pop(key_of(part), None)) is not part and was != part])
    return changed, tuple(known)


def _replaced(
    before: tuple[Part, ...], changed: Iterable[Part], gone: Iterable[Key], key_of: Callable[[Part], Key]
) -> tuple[Part, ...]:
    changed, gone = tuple(changed), tuple(gone)
    if not changed and not gone:
        return before
    known = {key_of(part): part for part in before}
    for key in gone:
        if key not in known:
            raise ValueError(f"{key} is to be gone, and was not there")
        del known[key]
    fresh = [part for part in changed if key_of(part) not in known]
    known |= {key_of(part): part for part in changed}
    if not fresh:
        return tuple(known.values())
    return tuple(sorted(known.values(), key=key_of))  # type: ignore[arg-type]
