"""A job that comes while a round is being decided starts on what the last one left, by every rule, and replays like any round."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest
from msgspec import structs

from reconciler.backends.simulated.backend import SimulatedBackend
from reconciler.control.control import Concluded, Solved
from reconciler.control.ledger_site import one_pass
from reconciler.control.narrow_rounds import NarrowRounds
from reconciler.control.passes import Pass
from reconciler.control.replay import replay
from reconciler.model.failure import Failure
from reconciler.protocols.backend import BackendChanges, Cursor, Epoch
from solver.checker.ledger_check import LedgerCheck
from solver.milp.highs import optimise
from solver.model.cluster import GpuType
from solver.model.quantities import MilliGpu
from solver.model.snapshot import Snapshot
from solver.model.workload import JobName, QueueName
from solver.narrow.narrow_world import NarrowWorld
from solver.policy.policy import Policy, Queue, Quota, policy_of
from solver.round.solve import solve
from tests.reconciler.control.plane import Site, site_at
from tests.reconciler.control.test_interventions import by_hand
from tests.reconciler.control.test_runner import until

FOREVER = ("sleep", "forever")


class NarrowSite:
    """A site whose jobs may be started alone, however short its rounds are."""

    def __init__(self, site: Site) -> None:
        self.site, self.told = site, list[str]()
        self.narrow = NarrowRounds(site.only_plane, self.epoch, self.told.append, from_s=0)

    def epoch(self) -> Epoch | None:
        return self.site.store.ledger.epoch_of("only")

    def one_pass(
        self, happens: Callable[[], object] = lambda: None, later: Callable[[], object] = lambda: None
    ) -> Pass:
        """A pass, in the midst of whose round something happens, and something once the round has been acted on."""
        plane = self.site.only_plane

        def solve(snapshot: Snapshot, policy: Policy) -> Solved:
            found = plane.solve(snapshot, policy)
            happens()

            def conclude() -> Concluded:
                later()
                return found.conclude()

            return found._replace(conclude=conclude)

        self.site.clock.advance(1_000)
        return one_pass(replace(plane, solve=solve), self.narrow)

    def rest(self) -> None:
        for _ in range(20):
            if self.one_pass().idle:
                return

    def comes(self, name: str, gpus: int = 1, tasks: int = 1, queue: str = "q") -> JobName:
        """A job that is submitted, and looked at alone."""
        job = self.site.submit(name, FOREVER, tasks, gpus, queue=queue)
        self.narrow.start([job])
        return job

    def holds(self, name: str) -> bool:
        return self.site.store.ledger.held_by(JobName(name)) is not None

    def narrow_rounds(self) -> list[int]:
        """The numbers of what was started alone, oldest first."""
        return [line.number for line in self.site.store.history.rounds(100) if line.stage == "narrow"][::-1]


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[NarrowSite]:
    """Two nodes of four GPUs; one job runs on three of them, one waits for ten."""
    with site_at(tmp_path / "quorate.db") as site:
        made = NarrowSite(site)
        site.submit("runs", FOREVER, gpus=3)
        site.submit("waits", FOREVER, gpus=4, tasks=3)
        made.rest()
        assert (site.state("runs"), site.state("waits")) == ("running", "queued")
        yield made


def test_it_starts_while_a_round_is_being_decided_and_runs_as_any_other(busy: NarrowSite) -> None:
    def comes() -> None:
        busy.comes("fresh", gpus=2)
        assert busy.site.state("fresh") == "starting"

    busy.one_pass(comes)
    busy.rest()
    assert busy.site.states("fresh") == ["starting", "running"]
    assert (busy.narrow.counts.started, busy.narrow.fault, busy.told) == (1, "", [])


def test_what_the_round_under_way_gives_away_is_not_given_twice(busy: NarrowSite) -> None:
    """It sees both jobs wait, and is overtaken for one; the other gets what is left, or waits for the next round."""
    first = busy.site.submit("first", FOREVER, gpus=4)

    def comes() -> None:
        busy.comes("fresh", gpus=4)
        assert busy.holds("fresh")

    done = busy.one_pass(comes)
    assert (busy.holds(first), done.refused) == (False, 1)
    assert "others have started since" in busy.site.store.history.events(first)[-1].cause
    busy.rest()
    assert (busy.site.state("fresh"), busy.site.state(first)) == ("running", "queued")


def test_what_the_round_has_given_away_is_no_longer_left(busy: NarrowSite) -> None:
    busy.site.submit("first", FOREVER, gpus=4)
    busy.one_pass(later=lambda: busy.comes("fresh", gpus=4))
    assert (busy.holds("first"), busy.holds("fresh"), busy.narrow.fault) == (True, False, "")


def test_a_round_that_looked_before_a_start_does_not_undo_it(busy: NarrowSite) -> None:
    """What it read then still shows the devices free."""
    first = busy.site.submit("first", FOREVER, gpus=4)
    seen = busy.one_pass(lambda: busy.comes("before", gpus=4)).snapshot
    busy.site.store.jobs.request_cancel(JobName("before"), "ada")
    busy.site.until("before", "cancelled")
    busy.rest()
    busy.site.store.jobs.request_cancel(first, "ada")
    busy.site.until(first, "cancelled")
    busy.rest()
    policy = busy.site.policy
    busy.narrow.look()
    busy.comes("fresh", gpus=4)
    assert busy.holds("fresh")
    busy.narrow.see(seen, policy)
    left, overtaken = busy.narrow.commit(solve(seen, policy, None))
    assert (left.steps, list(overtaken)) == ((), [first])


def test_a_job_that_the_round_wants_to_start_too_is_started_once(busy: NarrowSite) -> None:
    job = busy.site.submit("fresh", FOREVER, gpus=1)
    busy.one_pass(lambda: busy.narrow.start([job]))
    busy.rest()
    assert busy.site.events("fresh").count("bound") == 1
    assert "bind-refused" not in busy.site.events("fresh")


def test_a_max_holds_beside_the_round_under_way(tmp_path: Path) -> None:
    """The round starts one job of the queue, which fills it; another that comes meanwhile finds GPUs, and may not have them."""
    with site_at(tmp_path / "quorate.db") as site:
        made, most = NarrowSite(site), MilliGpu.gpus(2)
        site.policy = policy_of((Queue(QueueName("q"), None, (Quota(GpuType("H100"), most, most),)),))
        made.rest()
        in_turn = site.submit("in-turn", FOREVER, gpus=2)
        made.one_pass(lambda: made.comes("fresh", gpus=2))
        assert (made.holds("fresh"), made.holds(in_turn)) == (True, False)
        made.comes("more", gpus=1)
        made.rest()
        assert [name for name in ("fresh", "in-turn", "more") if made.holds(name)] == ["fresh"]


def test_jobs_that_follow_each_other_share_what_is_left(busy: NarrowSite) -> None:
    for number in range(7):
        busy.comes(f"fresh-{number}")
    assert [busy.holds(f"fresh-{number}") for number in range(7)] == [True] * 5 + [False] * 2
    busy.rest()
    assert busy.site.state("fresh-6") == "queued"


def test_what_has_become_free_goes_first_to_those_that_wait(busy: NarrowSite) -> None:
    """Whether a job that waits could have it, the next complete round says."""
    busy.comes("all", gpus=1)
    busy.site.store.jobs.request_cancel(JobName("runs"), "ada")
    busy.site.until("runs", "cancelled")
    busy.comes("takes-4", gpus=4)
    busy.comes("late", gpus=3)
    assert (busy.holds("takes-4"), busy.holds("late")) == (True, False)
    busy.rest()
    assert busy.holds("late")


def test_nothing_starts_under_another_policy_than_that_of_the_round(busy: NarrowSite) -> None:
    current = busy.site.current()
    busy.site.current = lambda: current._replace(revision="another")  # type: ignore[method-assign]
    busy.comes("fresh")
    assert not busy.holds("fresh")
    busy.rest()
    assert busy.holds("fresh")
    busy.comes("later")
    assert busy.holds("later")


def test_nothing_starts_where_people_keep_nodes_from_new_work_since(busy: NarrowSite) -> None:
    for node in busy.site.declared:
        by_hand(busy.site, "cordon", "node", node.name)
    busy.comes("fresh")
    assert not busy.holds("fresh")
    busy.rest()
    busy.comes("later")
    assert not busy.holds("later")


def test_what_has_begun_before_waits_for_a_complete_round(busy: NarrowSite) -> None:
    epoch = busy.epoch()
    assert epoch is not None
    job = busy.site.submit("again", FOREVER)
    busy.site.store.jobs.retry(epoch, job, Failure(1, "exit", busy.site.clock.now(), busy.site.clock.now()))
    busy.narrow.start([job])
    assert not busy.holds(job)


def test_each_is_a_round_on_record_and_replays_alike(busy: NarrowSite) -> None:
    busy.comes("one", gpus=2)
    busy.comes("too-large", gpus=4, tasks=2)
    busy.one_pass(lambda: busy.comes("two"))
    busy.comes("three")
    history, numbers = busy.site.store.history, busy.narrow_rounds()
    assert len(numbers) == 3
    records = [history.round(number) for number in numbers]
    assert [[step.job for step in record.narrow[-1].steps] for record in records] == [["one"], ["two"], ["three"]]
    assert [record.number for record in records] == numbers
    for record in records:
        found = replay(record, optimise)
        assert (found.identical, found.round, found.difference) == (True, record.number, "")
    (last,) = records[0].narrow
    elsewhere = structs.replace(last, steps=records[1].narrow[-1].steps)
    assert not replay(structs.replace(records[0], narrow=(elsewhere,)), optimise).identical


def test_the_thread_starts_what_it_is_told_of_and_ends(busy: NarrowSite) -> None:
    thread = Thread(target=busy.narrow.run)
    busy.narrow.tell([busy.site.submit("fresh", FOREVER)])
    thread.start()
    until(lambda: busy.holds("fresh"))
    busy.narrow.stop()
    thread.join(60)
    assert not thread.is_alive()


def test_what_was_started_is_judged_once_more_as_a_whole_when_the_next_round_is_over(
    busy: NarrowSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Should what judges single starts be wrong, the checker of whole plans is not."""
    monkeypatch.setattr(NarrowWorld, "_have", lambda *_: None)
    monkeypatch.setattr(LedgerCheck, "refused", lambda *_: ())
    busy.comes("one", gpus=4)
    busy.comes("two", gpus=4)
    assert (busy.holds("one"), busy.holds("two"), busy.narrow.fault) == (True, False, "")
    monkeypatch.undo()
    busy.one_pass()
    assert "S1" in busy.narrow.fault


def test_starts_before_and_after_a_deed_of_a_round_are_judged_as_they_came(busy: NarrowSite) -> None:
    """What was started before it is not judged as if it had come after."""
    busy.site.submit("in-turn", FOREVER, gpus=1)
    busy.one_pass(lambda: busy.comes("before", gpus=2), later=lambda: busy.comes("after", gpus=1))
    assert all(map(busy.holds, ("in-turn", "before", "after")))
    busy.one_pass()
    assert busy.narrow.fault == ""


def test_a_start_that_breaks_a_rule_is_not_done_and_ends_all_of_it(
    busy: NarrowSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A defect of what decides is found by what judges."""
    monkeypatch.setattr(NarrowWorld, "_have", lambda *_: None)
    busy.comes("one", gpus=4)
    busy.comes("two", gpus=4)
    assert (busy.holds("one"), busy.holds("two")) == (True, False)
    assert "S1" in busy.narrow.fault
    assert len(busy.told) == 1
    busy.comes("three", gpus=1)
    assert not busy.holds("three")
    busy.rest()
    assert busy.holds("three")


def test_one_that_starts_while_a_pass_looks_is_counted_once(busy: NarrowSite) -> None:
    """The pass sees it, though it had begun to look before."""
    quota = Quota(GpuType("H100"), max=MilliGpu.gpus(5))
    busy.site.policy = policy_of((Queue(QueueName("q"), None, (quota,)),))
    busy.rest()

    class Looking(SimulatedBackend):
        def changes(self, since: Cursor) -> BackendChanges:
            if since == Cursor(0) and not busy.holds("fresh"):
                busy.comes("fresh")
                assert busy.holds("fresh")
            return super().changes(since)

    plane = replace(busy.site.only_plane, backend=Looking(busy.site.cluster))
    one_pass(plane, busy.narrow)
    # Three and one are held: one more may be.
    busy.comes("last")
    assert busy.holds("last")
    busy.comes("beyond")
    assert not busy.holds("beyond")
    assert busy.told == []
