"""A simulated task that saves its work when it is told to, and then goes on."""

from __future__ import annotations

import random

from reconciler.backends.simulated.backend import SimulatedBackend
from reconciler.backends.simulated.behaviour import KIND
from reconciler.backends.simulated.cluster import SimulatedCluster
from reconciler.model.clock import VirtualClock
from reconciler.protocols.backend import Cursor, Epoch, TellReason
from tests.contracts.backend_world import start, stop, tell
from tests.contracts.simulated_worlds import NODES, SimulatedWorld

ONE = Epoch(1)


def told(reason: TellReason, stopped_after_ms: int | None = None) -> tuple[SimulatedCluster, SimulatedBackend]:
    """A gang of two that has been told 10 seconds ago, and perhaps stopped meanwhile."""
    clock = VirtualClock()
    cluster = SimulatedCluster(NODES, clock, random.Random(1), KIND)
    backend = SimulatedBackend(cluster)
    backend.submit(start(SimulatedWorld(KIND), "job", ("save", "3s"), (0, (0,)), (1, (0,))), ONE)
    clock.advance(1_000)
    backend.submit(tell("job", 1, reason=reason), ONE)
    if stopped_after_ms is not None:
        clock.advance(stopped_after_ms)
        backend.submit(stop("job", grace_ms=0), ONE)
    clock.advance(10_000)
    backend.changes(Cursor(0))
    return cluster, backend


def test_it_has_saved_after_its_time_and_runs_on() -> None:
    cluster, backend = told("checkpoint")
    assert [(saved.index, saved.number) for saved in cluster.tells.saved] == [(0, 1), (1, 1)]
    assert [saved.at - heard.at for saved, heard in zip(cluster.tells.saved, cluster.tells.heard, strict=True)] == [
        3_000
    ] * 2
    assert [task.state for task in backend.changes(Cursor(0)).tasks] == ["running"] * 2


def test_one_that_was_stopped_while_it_saved_has_saved_nothing() -> None:
    cluster, _ = told("checkpoint", stopped_after_ms=2_000)
    assert (len(cluster.tells.heard), cluster.tells.saved) == (2, [])


def test_a_dump_is_no_reason_to_save() -> None:
    cluster, _ = told("dump")
    assert (len(cluster.tells.heard), cluster.tells.saved) == (2, [])
