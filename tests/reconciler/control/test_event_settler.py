"""What happens while a round is decided is settled beside it; and no more is done than a pass would do."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from threading import Thread

import msgspec
import pytest
from sqlalchemy import event

from reconciler.backends.simulated.backend import SimulatedBackend
from reconciler.control.control import Solved
from reconciler.control.event_settler import EventSettler
from reconciler.control.ledger_site import one_pass
from reconciler.control.narrow_ground import UNPROVEN
from reconciler.control.plan_executor import PlanExecutor
from reconciler.documents.operations import Operations
from reconciler.model.health_policy import HealthPolicy
from reconciler.protocols.backend import BackendChanges, Cursor, Epoch
from solver.model.inflight import Intent
from solver.model.quantities import Duration, MilliGpu
from solver.model.snapshot import Snapshot
from solver.model.workload import JobName
from solver.plan.plan import Evict, Plan, Release
from solver.policy.policy import Policy
from tests.reconciler.control.plane import Site
from tests.reconciler.control.test_health import tell
from tests.reconciler.control.test_interventions import by_hand
from tests.reconciler.control.test_partition import changing
from tests.reconciler.control.test_partition import submit as submit_part
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


def during_the_round(site: Site, happens: Callable[[Epoch], object], events: EventSettler | None = None) -> None:
    """A pass, in the midst of whose round something happens."""
    plane, epoch = site.only_plane, site.store.ledger.epoch_of("only")
    assert epoch is not None

    found_wrong = list[AssertionError]()

    def solve(snapshot: Snapshot, policy: Policy) -> Solved:
        found = plane.solve(snapshot, policy)
        # A pass outlives whatever its solver raises.
        try:
            happens(epoch)
        except AssertionError as wrong:
            found_wrong.append(wrong)
        return found

    site.clock.advance(1_000)
    one_pass(replace(plane, solve=solve), events=events)
    for wrong in found_wrong:
        raise wrong


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


def beside(site: Site, ended: Callable[[Collection[JobName]], None] = lambda _: None) -> EventSettler:
    return EventSettler(site.only_plane, lambda: site.store.ledger.epoch_of("only"), ended)


def after_s(site: Site, seconds: int, events: EventSettler) -> Callable[[Epoch], None]:
    """So much later in the round, what is reported is settled."""

    def happens(_: Epoch) -> None:
        site.clock.advance(seconds * 1_000)
        events.settle()

    return happens


def test_a_gang_that_ends_during_a_round_has_given_back_before_the_round_acts(site: Site) -> None:
    told = list[Collection[JobName]]()
    events, brief = beside(site, told.append), site.submit("brief", ("sleep", "20s"))
    site.until(brief, "running")

    def ends(epoch: Epoch) -> None:
        after_s(site, 30, events)(epoch)
        assert site.state(brief) == "succeeded"
        assert site.store.ledger.held_by(brief) is None
        events.settle()

    during_the_round(site, ends, events)
    assert told == [(brief,)]
    site.rest()
    assert site.events(brief).count("succeeded") == site.events(brief).count("released") == 1
    assert site.sighted().attempts == {}


def test_a_gang_that_begins_to_run_is_confirmed_and_one_that_fails_is_to_begin_again(site: Site) -> None:
    events, runs = beside(site), site.submit(RUNS, ("sleep", "forever"))
    fails = site.submit("fails", ("fail", "3", "20s"))
    site.one_pass()
    assert site.state(runs) == "starting"

    def begins(epoch: Epoch) -> None:
        after_s(site, 5, events)(epoch)
        assert (site.state(runs), site.state(fails)) == ("running", "running")
        after_s(site, 30, events)(epoch)
        assert site.store.jobs.job(fails).outcome is not None or site.store.jobs.job(fails).failures

    during_the_round(site, begins, events)


def test_of_a_gang_that_has_ended_meanwhile_nothing_is_asked(site: Site) -> None:
    """The round that was decided before would have it leave for another."""
    evict = Evict(JobName("brief"), 1, "preempt", Duration(1_000), MilliGpu(1_000), 0.0, JobName("other"))
    leave = Plan("", "", (evict,), (), UNPROVEN)
    events, brief = beside(site), site.submit("brief", ("sleep", "20s"))
    site.until(brief, "running")
    epoch = site.store.ledger.epoch_of("only")
    assert epoch is not None
    events.follow(site.sighted())
    after_s(site, 30, events)(epoch)
    PlanExecutor(site.only_plane, epoch).act(leave)
    assert site.events(brief)[-1] == "released"
    assert site.store.ledger.intents() == ()
    assert site.sighted().attempts == {}


def test_a_gang_that_became_ready_meanwhile_is_not_released(site: Site) -> None:
    events, runs, seen = beside(site), site.submit(RUNS, ("sleep", "forever")), site.sighted()
    site.one_pass()
    epoch = site.store.ledger.epoch_of("only")
    assert epoch is not None
    events.follow(seen)
    after_s(site, 10, events)(epoch)
    assert site.state(runs) == "running"
    leader, late = PlanExecutor(site.only_plane, epoch), Plan("", "", (Release(runs, 1),), (), UNPROVEN)
    assert leader.act(late) == 1
    assert stops(site, runs) == 0
    # Of an attempt before, or one that is still to begin, it is what it was.
    waits = site.submit("slow", ("sleep", "forever"))
    site.one_pass()
    assert leader.act(Plan("", "", (Release(waits, 1),), (), UNPROVEN)) == 0
    assert stops(site, waits) == 1


def test_a_node_that_dies_takes_its_gangs_with_it_at_once(busy: Site) -> None:
    events = beside(busy)
    claim = busy.store.ledger.held_by(RUNS)
    assert claim is not None

    def dies(epoch: Epoch) -> None:
        busy.cluster.fail_node(claim.tasks[0].node, busy.clock.now(), Duration(600_000))
        after_s(busy, 5, events)(epoch)
        assert busy.state(RUNS) == "stopping"

    during_the_round(busy, dies, events)


def test_a_gang_on_a_gpu_that_is_not_well_is_asked_to_leave_at_once(busy: Site) -> None:
    busy.operations = Operations(health=HealthPolicy())
    busy.one_pass()
    events = beside(busy)
    claim = busy.store.ledger.held_by(RUNS)
    assert claim is not None

    def falls_ill(epoch: Epoch) -> None:
        tell(busy, claim.tasks[0].node, 48, gpu=claim.tasks[0].devices[0])
        after_s(busy, 1, events)(epoch)
        assert stops(busy, RUNS) == 1

    during_the_round(busy, falls_ill, events)


def test_a_gpu_that_is_partitioned_is_free_for_what_waits_for_it_at_once(site: Site) -> None:
    changing(site, 2)
    site.faults(effect_delay=Duration(20_000))
    events, small, seen = beside(site), submit_part(site, "small"), site.sighted()
    site.one_pass()
    assert site.store.ledger.partitionings.in_flight()
    site.clock.advance(30_000)
    events.follow(seen)
    events.settle()
    assert site.store.ledger.partitionings.in_flight() == ()
    assert site.events("n1/0") == ["partitions", "partitioned"]
    assert site.state(small) == "starting"


def test_what_a_gang_has_used_counts_though_it_ends_beside_a_round(site: Site) -> None:
    half_life = msgspec.structs.replace(site.policy.scheduling, usage_half_life=Duration(3_600_000))
    site.policy = msgspec.structs.replace(site.policy, scheduling=half_life)
    events, brief = beside(site), site.submit("brief", ("sleep", "3600s"))
    site.until(brief, "running")

    def ends(epoch: Epoch) -> None:
        after_s(site, 3_600, events)(epoch)
        (used,) = site.store.ledger.past_use().usage
        # One GPU for an hour under a half-life of an hour: 1 / ln 2 * (1 - 1/2) GPU-hours.
        assert used.gpu_hours == pytest.approx(0.5 / 0.693147, rel=1e-2)

    during_the_round(site, ends, events)


def test_a_gang_of_which_one_task_ends_after_the_other_has_ended_with_the_last(site: Site) -> None:
    events, brief = beside(site), site.submit("brief", ("sleep", "forever"), tasks=2)
    site.until(brief, "running")

    def ends(_: Epoch) -> None:
        for number, interval in enumerate(site.cluster.intervals):
            assert site.state(brief) == "running", interval
            site.clock.advance(1_000)
            site.cluster.end(number, "succeeded", site.clock.now(), 0, "")
            events.settle()
        assert site.state(brief) == "succeeded"

    during_the_round(site, ends, events)


def test_a_pass_looks_and_settles_alone(site: Site) -> None:
    """Also after one that was broken off in the midst of its round."""
    events, brief = beside(site), site.submit("brief", ("sleep", "20s"))
    site.until(brief, "running")
    events.follow(site.sighted())
    site.clock.advance(30_000)

    class Looking(SimulatedBackend):
        def changes(self, since: Cursor) -> BackendChanges:
            if since == Cursor(0):
                events.settle()
                assert site.state(brief) == "running"
            return super().changes(since)

    one_pass(replace(site.only_plane, backend=Looking(site.cluster)), events=events)
    assert site.state(brief) == "succeeded"


def test_what_people_do_takes_back_a_promise_at_once(site: Site) -> None:
    """A job that is held by hand has nothing kept for it."""
    events, held = beside(site), site.submit("held", ("sleep", "forever"))
    epoch = site.store.ledger.lead("only", site.clock.now(), site.only_plane.lease)
    now = site.clock.now()
    site.store.ledger.nominate(epoch, Intent("nominate", held, 1, now, now.after(Duration(60_000)), ()))
    events.follow(site.sighted())
    events.settle()
    assert site.store.ledger.intents()
    by_hand(site, "hold", "job", held)
    events.settle()
    assert site.store.ledger.intents() == ()
    assert site.events(held)[-1] == "withdrawn"


def test_a_gang_that_saves_its_work_waits_for_its_turn_in_a_pass(site: Site) -> None:
    events, brief = beside(site), site.submit("brief", ("sleep", "20s"))
    site.until(brief, "running")
    epoch = site.store.ledger.epoch_of("only")
    assert epoch is not None
    now = site.clock.now()
    stop = Intent("stop", brief, 1, now, now.after(Duration(60_000)), purpose="evict", stage="waits-to-save")
    site.store.ledger.ask(epoch, stop)
    events.follow(site.sighted())
    after_s(site, 30, events)(epoch)
    assert site.store.ledger.intents() == (stop,)
    assert site.store.ledger.held_by(brief) is not None


def test_nothing_is_settled_while_a_pass_looks_nor_after_it(site: Site) -> None:
    events, brief = beside(site), site.submit("brief", ("sleep", "20s"))
    site.until(brief, "running")
    during_the_round(site, lambda _: None, events)
    site.clock.advance(30_000)
    events.settle()
    assert site.state(brief) == "running"
    site.rest()
    assert site.state(brief) == "succeeded"


def test_what_one_end_asks_of_the_store_does_not_grow_with_the_jobs(site: Site) -> None:
    def asked(others: int) -> int:
        for number in range(others):
            site.submit(f"waits-{others}-{number}", ("sleep", "forever"), gpus=4, tasks=9)
        brief = site.submit(f"brief-{others}", ("sleep", "20s"))
        site.until(brief, "running")
        events, statements = beside(site), list[str]()
        events.follow(site.sighted())
        site.clock.advance(30_000)

        def keep(_c: object, _u: object, statement: str, *_: object) -> None:
            statements.append(statement)

        event.listen(site.store.database.engine, "before_cursor_execute", keep)
        events.settle()
        event.remove(site.store.database.engine, "before_cursor_execute", keep)
        assert site.state(brief) == "succeeded"
        events.hold()
        return len(statements)

    assert asked(1) == asked(20)


def test_the_thread_settles_what_is_reported_while_a_round_is_decided(site: Site) -> None:
    told = list[Collection[JobName]]()
    events, brief = beside(site, told.append), site.submit("brief", ("sleep", "20s"))
    site.until(brief, "running")
    thread = Thread(target=events.run)
    thread.start()

    def ends(_: Epoch) -> None:
        site.clock.advance(30_000)
        until(lambda: bool(told))

    during_the_round(site, ends, events)
    events.stop()
    thread.join(60)
    assert not thread.is_alive()
    assert told == [(brief,)]
