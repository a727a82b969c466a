"""A gang that is cancelled is told to stop while a round is still being decided; and no more is done to it than a pass would."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from threading import Thread

import pytest

from reconciler.control.event_settler import EventSettler
from reconciler.control.control import Solved
from reconciler.control.ledger_site import one_pass
from reconciler.protocols.backend import Epoch
from solver.model.snapshot import Snapshot
from solver.model.workload import JobName
from solver.policy.policy import Policy
from tests.reconciler.control.plane import Site
from tests.reconciler.control.test_runner import until

RUNS, WAITS = JobName("runs"), JobName("waits")


@pytest.fixture
def busy(site: Site) -> Site:
    """One job runs on all GPUs of a node, one waits."""
    site.submit(RUNS, ("sleep", "forever"), gpus=4)
    site.submit(WAITS, ("sleep", "forever"), gpus=4, tasks=9)
    site.rest()
    assert (site.state(RUNS), site.state(WAITS)) == ("running", "queued")
    return site


def during_the_round(site: Site, happens: Callable[[Epoch], object]) -> None:
    """A pass, in the midst of whose round something happens."""
    plane, epoch = site.only_plane, site.store.ledger.epoch_of("only")
    assert epoch is not None

    def solve(snapshot: Snapshot, policy: Policy) -> Solved:
        found = plane.solve(snapshot, policy)
        happens(epoch)
        return found

    site.clock.advance(1_000)
    one_pass(replace(plane, solve=solve))


def stops(site: Site, name: JobName) -> int:
    return site.events(name).count("asked-to-stop")


def test_it_is_told_before_the_round_is_decided_and_once(busy: Site) -> None:
    def cancelled(epoch: Epoch) -> None:
        busy.store.jobs.request_cancel(RUNS, "ada")
        for _ in range(2):
            EventSettler(busy.only_plane, lambda: epoch).cancel([RUNS])
        assert stops(busy, RUNS) == 1
        assert busy.state(RUNS) == "stopping"

    during_the_round(busy, cancelled)
    busy.until(RUNS, "cancelled")
    busy.rest()
    assert stops(busy, RUNS) == 1
    assert busy.store.ledger.held_by(RUNS) is None


def test_one_that_a_round_starts_meanwhile_is_stopped_by_the_next_pass(busy: Site) -> None:
    late = busy.submit("late", ("sleep", "forever"))

    def cancelled(epoch: Epoch) -> None:
        busy.store.jobs.request_cancel(late, "ada")
        EventSettler(busy.only_plane, lambda: epoch).cancel([late])
        assert stops(busy, late) == 0

    during_the_round(busy, cancelled)
    busy.until(late, "cancelled")
    assert busy.store.ledger.held_by(late) is None


def test_nothing_is_done_to_others_nor_without_the_lead(busy: Site) -> None:
    epoch = busy.store.ledger.epoch_of("only")
    ours = EventSettler(busy.only_plane, lambda: epoch)
    ours.cancel([RUNS, WAITS, JobName("unknown")])
    busy.store.jobs.request_suspend(RUNS, "ada")
    ours.cancel([RUNS])
    assert stops(busy, RUNS) == 0
    for name in (RUNS, WAITS):
        busy.store.jobs.request_cancel(name, "ada")
    EventSettler(busy.only_plane, lambda: None).cancel([RUNS])
    assert stops(busy, RUNS) == 0
    ours.cancel([RUNS, WAITS])
    assert (stops(busy, RUNS), stops(busy, WAITS)) == (1, 0)


def test_the_thread_leaves_to_the_leader_what_it_may_not_do_any_more(busy: Site) -> None:
    epoch = busy.store.ledger.epoch_of("only")
    assert epoch is not None
    epochs = [Epoch(epoch - 1), epoch]
    thread_of = EventSettler(busy.only_plane, lambda: epochs.pop(0))
    busy.store.jobs.request_cancel(RUNS, "ada")
    thread = Thread(target=thread_of.run)
    thread_of.tell([RUNS])
    thread.start()
    until(lambda: len(epochs) == 1)
    assert stops(busy, RUNS) == 0
    thread_of.tell([RUNS])
    thread_of.stop()
    thread.join(60)
    assert not thread.is_alive()
    assert stops(busy, RUNS) == 1
