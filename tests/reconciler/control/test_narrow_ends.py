"""What a gang held that ended while a round is being decided goes to the jobs that wait for it, by every rule, and replays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest
from msgspec import structs

from reconciler.backends.simulated.backend import SimulatedBackend
from reconciler.control.ledger_site import one_pass
from reconciler.control.plan_executor import PlanExecutor
from reconciler.control.replay import replay
from reconciler.model.failure import Failure
from reconciler.protocols.backend import BackendChanges, Cursor
from reconciler.protocols.rounds import NarrowEnds, RoundRecord
from solver.checker.ledger_check import LedgerCheck
from solver.milp.highs import optimise
from solver.model.cluster import GpuType
from solver.model.quantities import MilliGpu
from solver.model.workload import JobName, QueueName
from solver.narrow.narrow_world import NarrowWorld
from solver.plan.plan import Bind
from solver.policy.policy import Queue, Quota, policy_of
from tests.reconciler.control.plane import site_at
from tests.reconciler.control.test_interventions import by_hand
from tests.reconciler.control.test_narrow_evictions import LentSite
from tests.reconciler.control.test_narrow_rounds import FOREVER, NarrowSite
from tests.reconciler.control.test_runner import until


class EndingSite(NarrowSite):
    """Gangs end and are settled beside the loop."""

    def end(self, *names: str) -> tuple[JobName, ...]:
        """These end by themselves, and it is on record that they hold nothing any more."""
        cluster, now = self.site.cluster, self.site.clock.now()
        for number, interval in enumerate(cluster.intervals):
            if interval.job in names and interval.end is None:
                cluster.end(number, "succeeded", now, 0, "")
        self.settle()
        return tuple(map(JobName, names))

    def settle(self) -> None:
        epoch = self.epoch()
        assert epoch is not None
        PlanExecutor(self.site.only_plane, epoch).settle(self.site.sighted(), self.site.operations, self.site.declared)

    def ends(self, *names: str) -> None:
        """The same, and it is looked at what becomes of that."""
        gone = self.end(*names)
        assert not any(map(self.holds, names))
        self.narrow.free(gone)

    def holding(self) -> set[str]:
        return {claim.job for claim in self.site.store.ledger.claims()}

    def counts(self) -> tuple[int, int]:
        """Ends of which all was settled alone, and those that were left."""
        return self.narrow.counts.freed, self.narrow.counts.ends_left


@pytest.fixture
def full(tmp_path: Path) -> Iterator[EndingSite]:
    """Two nodes of four GPUs, which four jobs of two fill; three jobs wait, the first of which is too large for what any frees."""
    with site_at(tmp_path / "quorate.db") as site:
        made = EndingSite(site)
        for number in range(4):
            site.submit(f"runs-{number}", FOREVER, gpus=2)
        made.rest()
        for name, gpus in (("large", 4), ("first", 2), ("second", 2)):
            site.clock.advance(1_000)
            site.submit(name, FOREVER, gpus=gpus)
        made.rest()
        assert [site.state(name) for name in ("large", "first", "second")] == ["queued"] * 3
        yield made


def test_the_first_job_that_can_use_it_starts_at_once(full: EndingSite) -> None:
    def happens() -> None:
        full.ends("runs-0")
        assert full.holding() == {"first", "runs-1", "runs-2", "runs-3"}

    full.one_pass(happens)
    full.rest()
    assert full.site.states("first") == ["starting", "running"]
    assert (full.counts(), full.narrow.fault, full.told) == ((1, 0), "", [])


def test_ends_that_come_together_are_served_together(full: EndingSite) -> None:
    """The job that came first finds room on a node that two of them leave."""
    nodes = {claim.job: claim.tasks[0].node for claim in full.site.store.ledger.claims()}
    together = [name for name in nodes if nodes[name] == nodes[JobName("runs-0")]]
    full.ends(*together)
    assert "large" in full.holding()
    assert full.holding().isdisjoint({"first", "second"})


def test_what_no_job_that_waits_could_use_is_left_to_those_that_come(full: EndingSite) -> None:
    for name in ("first", "second"):
        full.site.store.jobs.request_cancel(JobName(name), "ada")
    full.rest()
    full.comes("small", gpus=1)
    assert not full.holds("small")
    full.ends("runs-0")
    assert full.holds("small")
    full.comes("fresh", gpus=1)
    full.comes("late", gpus=1)
    assert (full.holds("fresh"), full.holds("late")) == (True, False)


def test_a_job_that_comes_does_not_pass_one_that_waits(full: EndingSite) -> None:
    gone = full.end("runs-0")
    full.comes("fresh", gpus=2)
    full.narrow.free(gone)
    assert (full.holds("first"), full.holds("fresh")) == (True, False)


def test_a_job_that_has_come_and_waits_stands_in_its_place(full: EndingSite) -> None:
    full.comes("fresh", gpus=2)
    full.ends("runs-0", "runs-1", "runs-2")
    assert {"large", "first"} < full.holding()
    assert full.holding().isdisjoint({"second", "fresh"})
    full.ends("runs-3")
    assert (full.holds("second"), full.holds("fresh")) == (True, False)


def test_the_round_under_way_does_not_start_it_twice(full: EndingSite) -> None:
    """It has not seen the end when it looked, or it has."""
    gone = full.end("runs-0")
    full.one_pass(lambda: full.narrow.free(gone))
    full.one_pass(lambda: full.ends("runs-1"))
    full.rest()
    for name in ("first", "second"):
        assert full.site.events(name).count("bound") == 1
        assert "bind-refused" not in full.site.events(name)
    assert full.narrow.fault == ""


def test_what_a_narrow_round_has_given_the_round_under_way_gives_to_no_other(full: EndingSite) -> None:
    """The round sees the end, and a job that was cancelled before it looked; beside it another has got the place."""
    gone = full.end("runs-0")
    full.site.store.jobs.request_cancel(JobName("first"), "ada")

    def happens() -> None:
        full.narrow.free(gone)
        assert full.holds("second")

    done = full.one_pass(happens)
    assert (done.refused, full.holding()) == (1, {"second", "runs-1", "runs-2", "runs-3"})
    full.rest()
    assert full.site.events("second").count("bound") == 1


def test_a_job_that_is_cancelled_meanwhile_is_passed_over(full: EndingSite) -> None:
    full.site.store.jobs.request_cancel(JobName("first"), "ada")
    full.ends("runs-0")
    assert (full.holds("first"), full.holds("second")) == (False, True)


def test_a_job_that_is_suspended_meanwhile_is_passed_over(full: EndingSite) -> None:
    full.site.store.jobs.request_suspend(JobName("first"), "ada")
    full.ends("runs-0")
    assert (full.holds("first"), full.holds("second")) == (False, True)


def test_ends_that_come_late_say_nothing_of_a_job_that_holds_something_anew(full: EndingSite) -> None:
    epoch = full.epoch()
    assert epoch is not None
    full.end("runs-0")
    full.narrow.free([JobName("runs-1")])
    assert (full.holding(), full.counts()) == ({"runs-1", "runs-2", "runs-3"}, (1, 0))
    full.rest()
    full.narrow.free([JobName("runs-0")])
    full.comes("fresh", gpus=1)
    assert (full.holds("fresh"), full.narrow.fault) == (False, "")


def test_a_job_that_waits_again_is_left_to_the_round_and_so_is_all_behind_it(full: EndingSite) -> None:
    """It came first, and whether it may begin anew only the round knows."""
    epoch = full.epoch()
    assert epoch is not None
    cluster, now, job = full.site.cluster, full.site.clock.now(), JobName("runs-0")
    number = next(number for number, interval in enumerate(cluster.intervals) if interval.job == job)
    cluster.end(number, "failed", now, 1, "")
    full.site.store.jobs.retry(epoch, job, Failure(1, "exit", now, now))
    full.site.store.ledger.release_all(epoch, [(job, 1)], now)
    full.narrow.free([job])
    assert (full.holding(), full.counts()) == ({"runs-1", "runs-2", "runs-3"}, (0, 1))


def test_nothing_starts_where_people_keep_nodes_from_new_work_since(full: EndingSite) -> None:
    for node in full.site.declared:
        by_hand(full.site, "cordon", "node", node.name)
    full.ends("runs-0")
    assert (full.holds("first"), full.counts()) == (False, (0, 1))


def test_a_max_holds(tmp_path: Path) -> None:
    """A queue that holds what it may gets what it gives up, wherever that is."""
    with site_at(tmp_path / "quorate.db") as site:
        made, most = EndingSite(site), MilliGpu.gpus(4)
        site.policy = policy_of((Queue(QueueName("q"), None, (Quota(GpuType("H100"), most, most),)),))
        for number in range(2):
            site.submit(f"runs-{number}", FOREVER, gpus=2)
        made.rest()
        for number in range(2):
            site.submit(f"waits-{number}", FOREVER, gpus=2)
        made.rest()
        made.ends("runs-0")
        assert made.holding() == {"runs-1", "waits-0"}
        made.comes("fresh", gpus=1)
        assert not made.holds("fresh")


def narrow_records(site: NarrowSite) -> list[RoundRecord]:
    return [site.site.store.history.round(number) for number in site.narrow_rounds()]


def test_each_is_a_round_on_record_and_replays_alike(full: EndingSite) -> None:
    full.ends("runs-0")
    full.comes("fresh", gpus=1)
    full.ends("runs-1")
    full.one_pass(lambda: full.ends("runs-2", "runs-3"))
    full.ends("first")
    records = narrow_records(full)
    assert [[step.job for step in record.narrow[-1].steps] for record in records] == [
        ["first"],
        ["second"],
        ["large"],
        ["fresh"],
    ]
    assert [record.narrow[-1].freed_by[-1] for record in records] == ["runs-0", "runs-1", "runs-3", "first"]
    for record in records:
        found = replay(record, optimise)
        assert (found.identical, found.difference) == (True, "")
    (last,) = records[0].narrow
    nobody = structs.replace(last, ended=(NarrowEnds((), 0),))
    assert not replay(structs.replace(records[0], narrow=(nobody,)), optimise).identical


def test_the_thread_gives_what_ended_to_those_that_wait(full: EndingSite) -> None:
    thread = Thread(target=full.narrow.run)
    thread.start()
    full.narrow.ended(full.end("runs-0"))
    until(lambda: full.holds("first"))
    full.narrow.stop()
    thread.join(60)
    assert not thread.is_alive()


def test_a_place_that_is_not_free_is_refused_before_the_deed(full: EndingSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect of what decides is found by what judges."""
    monkeypatch.setattr(LedgerCheck, "end", lambda *_: None)
    full.ends("runs-0")
    assert not full.holds("first")
    assert "S1" in full.narrow.fault
    full.rest()
    assert full.holds("first")


def test_all_is_judged_once_more_when_the_next_round_is_over(full: EndingSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NarrowWorld, "_have", lambda *_: None)
    monkeypatch.setattr(LedgerCheck, "refused", lambda *_: ())
    full.ends("runs-0")
    full.ends("runs-1")
    monkeypatch.undo()
    full.one_pass()
    assert "S1" in full.narrow.fault


def test_one_that_dies_between_record_and_deed_leaves_it_to_the_next(
    full: EndingSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is on record that a job starts, and no device is held for it: whoever leads next decides anew."""

    class Killed(BaseException):
        pass

    def die(*_: object) -> None:
        raise Killed

    monkeypatch.setattr(PlanExecutor, "act", die)
    gone = full.end("runs-0")
    with pytest.raises(Killed):
        full.narrow.free(gone)
    monkeypatch.undo()
    assert (full.holds("first"), len(full.narrow_rounds())) == (False, 1)
    after = EndingSite(full.site)
    after.rest()
    assert full.site.events("first").count("bound") == 1
    assert (full.site.state("first"), after.narrow.fault) == ("running", "")


# What was promised.


class EndingLentSite(LentSite, EndingSite):
    """Borrowed work leaves for urgent jobs."""

    def leave(self) -> tuple[JobName, ...]:
        """All that were asked to leave have left, and it is on record."""
        names = tuple(map(JobName, sorted(self.leaving())))
        self.site.clock.advance(10_000)
        self.settle()
        assert self.leaving() == set()
        return names


@pytest.fixture
def lent(tmp_path: Path) -> Iterator[EndingLentSite]:
    with site_at(tmp_path / "quorate.db") as site:
        made = EndingLentSite(site)
        made.fill()
        yield made


def test_what_was_promised_is_given_once_all_have_left(lent: EndingLentSite) -> None:
    assert len(lent.asks("urgent", 4)) == 2
    gone = lent.leave()
    lent.narrow.free(gone[:1])
    assert not lent.holds("urgent")
    lent.narrow.free(gone[1:])
    assert (lent.holds("urgent"), lent.counts()) == (True, (2, 0))
    lent.rest()
    assert (lent.site.state("urgent"), lent.narrow.fault) == ("running", "")
    assert lent.site.events("urgent").count("bound") == 1


def test_so_is_what_the_last_round_has_promised(lent: EndingLentSite) -> None:
    lent.submit("training", 2, "training")
    while not lent.leaving():
        lent.one_pass()
    gone = lent.leave()
    lent.narrow.free(gone)
    assert lent.holds("training")
    record = narrow_records(lent)[-1]
    assert [type(step) for step in record.narrow[-1].steps] == [Bind]
    assert replay(record, optimise).identical


def test_the_round_under_way_takes_no_promise_back_that_is_kept(lent: EndingLentSite) -> None:
    lent.asks("urgent", 2)
    lent.one_pass()
    lent.one_pass(lambda: lent.narrow.free(lent.leave()))
    assert lent.holds("urgent")
    lent.rest()
    assert (lent.site.state("urgent"), lent.narrow.fault) == ("running", "")
    assert lent.site.events("urgent").count("bound") == 1


def test_a_job_that_came_while_the_round_looked_and_is_promised_its_place_waits_for_no_other(
    lent: EndingLentSite,
) -> None:
    """It found no place, and the round has seen it."""

    class Looking(SimulatedBackend):
        def changes(self, since: Cursor) -> BackendChanges:
            if since == Cursor(0) and not came:
                came.append(lent.submit("training", 2, "training"))
                lent.narrow.start(came)
            return super().changes(since)

    came = list[JobName]()
    one_pass(replace(lent.site.only_plane, backend=Looking(lent.site.cluster)), lent.narrow)
    assert lent.promised() == {"training"}
    lent.ends("lent-0")
    assert not lent.holds("training")
    lent.narrow.free(lent.leave())
    assert (lent.holds("training"), lent.narrow.fault) == (True, "")
    lent.rest()
    assert (lent.site.events("training").count("bound"), lent.narrow.fault) == (1, "")


def test_what_was_promised_and_more_leaves_nothing_twice(lent: EndingLentSite) -> None:
    """Two GPUs leave for one, and the other goes to a job that waits inside its guarantee."""
    lent.asks("urgent", 1)
    lent.submit("waits", 1, "training")
    lent.one_pass()
    lent.narrow.free(lent.leave())
    assert lent.holds("urgent")
    lent.rest()
    assert (lent.site.state("urgent"), lent.site.state("waits"), lent.narrow.fault) == ("running", "running", "")
