"""A snapshot is the one before it with what a patch says, whatever became of nodes, jobs and what is in flight."""

from __future__ import annotations

import pytest
from hypothesis import given

from solver.model.cluster import Node
from solver.model.document import decode, encode
from solver.model.inflight import InFlight, Intent, Reservation
from solver.model.quantities import Instant
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.snapshot_patch import SnapshotPatch, patch_between, patched
from solver.model.workload import Job, JobName
from tests.drawn import worlds
from tests.solver.worlds import job, node, snapshots


@worlds(100)
@given(snapshots(), snapshots())
def test_patched_with_what_differs_one_snapshot_is_the_other(before: Snapshot, after: Snapshot) -> None:
    patch = patch_between(before, after)
    assert patched(before, patch) == after
    assert patched(before, decode(encode(patch), SnapshotPatch)) == after


def test_a_patch_holds_only_what_changed_and_the_rest_stays_the_very_same() -> None:
    nodes = [node(f"n{number}", 8) for number in range(3)]
    before = snapshot_of(Instant(0), nodes, [job("a", "q", 1, 1), job("b", "q", 1, 1)])
    asked = InFlight(intents=(Intent("start", JobName("b"), 1, Instant(5), Instant(9)),))
    after = snapshot_of(Instant(5), nodes, [job("b", "q", 1, 1), job("c", "q", 1, 2)], asked)
    patch = patch_between(before, after)
    assert ([one.name for one in patch.jobs], patch.gone_jobs) == (["c"], ("a",))
    assert (patch.nodes, patch.intents, patch.in_flight) == ((), asked.intents, None)
    again = patched(before, patch)
    assert again.nodes is before.nodes
    assert _named(again.jobs, "b") is _named(before.jobs, "b")


def test_what_is_in_flight_beside_intents_comes_whole_where_it_differs() -> None:
    before = snapshot_of(Instant(0), [], [])
    kept = InFlight(reservations=(Reservation(JobName("a"), (), Instant(3)),))
    assert patch_between(before, snapshot_of(Instant(0), [], [], kept)).in_flight == kept
    after = snapshot_of(Instant(1), [], [], kept)
    assert patched(after, patch_between(after, before)).in_flight == InFlight()


def test_a_patch_of_another_snapshot_is_refused() -> None:
    before = snapshot_of(Instant(0), [], [job("a", "q", 1, 1)])
    patch = patch_between(before, snapshot_of(Instant(0), [], []))
    with pytest.raises(ValueError, match="a is to be gone, and was not there"):
        patched(snapshot_of(Instant(0), [], []), patch)


def _named(parts: tuple[Node | Job, ...], name: str) -> Node | Job:
    return next(part for part in parts if part.name == name)
