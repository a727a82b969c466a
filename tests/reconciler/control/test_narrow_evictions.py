"""A job that comes while a round is being decided has borrowed work leave for it, and gets its place, once and for all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs

from reconciler.control.replay import replay
from solver.milp.highs import optimise
from solver.model.quantities import Duration
from solver.model.shape import Shape
from solver.model.workload import JobName, JobSpec, QueueName, TaskGroup
from solver.narrow.narrow_preemption import NarrowPreemption
from solver.plan.plan import Evict, Nominate
from solver.policy.harm import Evictions, Protection
from solver.policy.policy import Policy, PriorityClass, Queue, SchedulingPolicy, policy_of
from tests.reconciler.control.plane import START_DEADLINE, site_at
from tests.reconciler.control.test_narrow_rounds import FOREVER, NarrowSite
from tests.solver.worlds import quota_of

GRACE = Duration(5_000)
AT_ONCE = Duration(0)
URGENT = PriorityClass("inference", 1000, slo_class="latency-critical")


def policy(min_runtime: Duration = AT_ONCE) -> Policy:
    """A queue that is guaranteed six of the eight GPUs, and one that is guaranteed two and holds them all."""
    training = PriorityClass("training", 100, protection=Protection(min_runtime=min_runtime))
    queues = [Queue(QueueName(name), None, (quota_of("H100", gpus),)) for name, gpus in (("own", 6), ("theirs", 2))]
    evictions = Evictions(grace=GRACE)
    scheduling = SchedulingPolicy(
        default_priority_class="training", start_deadline=START_DEADLINE, evictions=evictions, reclaim="guaranteed"
    )
    return policy_of(tuple(queues), (training, URGENT), scheduling)


class LentSite(NarrowSite):
    """Two nodes of four GPUs, which four jobs of two fill; the first that started lies inside the guarantee of its queue."""

    def fill(self) -> None:
        self.site.policy = policy()
        for number in range(4):
            self.site.submit(f"lent-{number}", FOREVER, gpus=2, queue="theirs")
            self.rest()

    def submit(self, name: str, gpus: int, known: str = "inference", queue: str = "own", tasks: int = 1) -> JobName:
        spec = JobSpec(QueueName(queue), (TaskGroup("worker", tasks, Shape(gpus=gpus)),), known, command=FOREVER)
        return self.site.store.jobs.submit(JobName(name), spec, "ada", self.site.clock.now(), f"key-of-{name}").name

    def asks(self, name: str, gpus: int, known: str = "inference", queue: str = "own") -> tuple[str, ...]:
        """Who is asked to leave for a job that comes."""
        before = self.leaving()
        self.narrow.start([self.submit(name, gpus, known, queue)])
        return tuple(sorted(self.leaving() - before))

    def leaving(self) -> set[str]:
        return {intent.job for intent in self.site.store.ledger.intents() if intent.kind == "stop"}

    def promised(self) -> set[str]:
        return {intent.job for intent in self.site.store.ledger.intents() if intent.kind == "nominate"}

    def runs(self, *names: str) -> bool:
        """Whether these come to run: a minute is long enough for all that leave."""
        for _ in range(60):
            if all(self.site.state(name) == "running" for name in names):
                return True
            self.one_pass()
        return False

    def times_asked(self, name: str) -> int:
        return self.site.events(name).count("asked-to-stop")


@pytest.fixture
def lent(tmp_path: Path) -> Iterator[LentSite]:
    with site_at(tmp_path / "quorate.db") as site:
        made = LentSite(site)
        made.fill()
        yield made


def test_borrowed_work_leaves_at_once_and_the_job_gets_its_place(lent: LentSite) -> None:
    asked = lent.asks("urgent", 2)
    assert len(asked) == 1
    assert (lent.promised(), lent.site.store.history.events(JobName(asked[0]))[-1].beneficiary) == (
        {"urgent"},
        "urgent",
    )
    assert lent.runs("urgent")
    assert lent.site.state(asked[0]) == "queued"
    assert (lent.narrow.counts.promised, lent.narrow.fault) == (1, "")


def test_nobody_leaves_for_a_job_outside_its_guarantee(lent: LentSite) -> None:
    assert lent.asks("beyond", 4, queue="theirs") == ()
    assert lent.asks("large", 8) == ()
    assert len(lent.asks("inside", 2)) == 1


def test_nobody_leaves_for_a_job_that_is_not_urgent_before_the_next_round(lent: LentSite) -> None:
    assert lent.asks("training", 2, "training") == ()
    assert lent.runs("training")


def test_what_has_begun_too_lately_stays(lent: LentSite) -> None:
    lent.site.policy = policy(Duration(3_600_000))
    lent.rest()
    assert lent.asks("urgent", 2) == ()


def test_what_lies_inside_a_guarantee_stays(lent: LentSite) -> None:
    asked = [lent.asks(f"urgent-{number}", 2) for number in range(4)]
    assert [len(each) for each in asked] == [1, 1, 1, 0]
    assert "lent-0" not in lent.leaving()


def test_jobs_that_follow_each_other_have_others_leave(lent: LentSite) -> None:
    first, second = lent.asks("one", 2), lent.asks("two", 2)
    assert (len(first), len(second), set(first) & set(second)) == (1, 1, set())
    assert lent.runs("one", "two")


def test_what_leaves_for_one_and_is_more_than_it_needs_serves_the_next(lent: LentSite) -> None:
    assert len(lent.asks("one", 1)) == 1
    assert lent.asks("two", 1) == ()
    assert lent.promised() == {"one", "two"}
    assert lent.runs("one", "two")


def test_so_it_does_across_a_round(lent: LentSite) -> None:
    """The next round began to look before the first job came."""
    lent.one_pass(lambda: lent.asks("one", 1))
    assert (lent.asks("two", 1), lent.promised()) == ((), {"one", "two"})


def test_a_round_that_wants_the_same_for_the_same_job_asks_nobody_else(lent: LentSite) -> None:
    job = lent.submit("urgent", 2)
    lent.one_pass(lambda: lent.narrow.start([job]))
    assert (len(lent.leaving()), lent.promised()) == (1, {"urgent"})
    (asked,) = lent.leaving()
    assert lent.runs("urgent")
    assert (lent.times_asked(asked), lent.narrow.fault) == (1, "")


def test_a_round_that_wants_the_same_for_another_job_leaves_it_to_the_first(lent: LentSite) -> None:
    """It has two leave for one job, of which one leaves for another by then: the other of the two stays meanwhile."""
    waits = lent.submit("waits", 2, tasks=2)

    done = lent.one_pass(lambda: lent.asks("comes", 2))
    wanted = {step.job for step in done.plan.steps if isinstance(step, Evict)}
    assert (len(wanted), len(lent.leaving()), lent.promised()) == (2, 1, {"comes"})
    assert lent.runs("comes", waits)
    assert lent.narrow.fault == ""
    assert [lent.times_asked(f"lent-{number}") for number in range(4)] == [0, 1, 1, 1]


def test_nobody_is_asked_by_a_job_that_comes_whom_the_round_has_asked(lent: LentSite) -> None:
    lent.submit("waits", 4)
    lent.one_pass(later=lambda: lent.asks("comes", 2))
    assert (len(lent.leaving()), lent.promised()) == (3, {"waits", "comes"})
    lent.one_pass()
    assert lent.narrow.fault == ""


def test_nobody_leaves_where_evictions_are_limited_by_round(lent: LentSite) -> None:
    known = policy()
    evictions = structs.replace(known.scheduling.evictions, per_round=1)
    lent.site.policy = structs.replace(known, scheduling=structs.replace(known.scheduling, evictions=evictions))
    lent.rest()
    assert (lent.asks("urgent", 2), lent.narrow.fault) == ((), "")


def test_a_round_that_has_others_leave_replays_alike(lent: LentSite) -> None:
    lent.asks("one", 2)
    lent.asks("large", 8)
    lent.one_pass(lambda: lent.asks("two", 1))
    lent.asks("three", 1)
    lent.rest()
    numbers, history = lent.narrow_rounds(), lent.site.store.history
    records = [history.round(number) for number in numbers]
    said = [
        [(type(step), step.job) for step in record.narrow[-1].steps if isinstance(step, Nominate)] for record in records
    ]
    assert said == [[(Nominate, "one")], [(Nominate, "two")], [(Nominate, "three")]]
    assert [sum(isinstance(step, Evict) for step in record.narrow[-1].steps) for record in records] == [1, 1, 0]
    for record in records:
        found = replay(record, optimise)
        assert (found.identical, found.difference) == (True, "")


def test_a_choice_that_breaks_a_rule_is_not_acted_on_and_ends_all_of_it(
    lent: LentSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A defect of what decides is found by what judges."""
    monkeypatch.setattr(NarrowPreemption, "evict", lambda _, names, shares: shares)
    assert len(lent.asks("one", 2)) == 1
    assert lent.asks("two", 2) == ()
    assert "S1" in lent.narrow.fault
    assert lent.promised() == {"one"}


def test_what_was_decided_is_judged_as_a_whole_when_the_next_round_is_over(
    lent: LentSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Should what judges single promises be wrong, the checker of whole plans is not."""
    monkeypatch.setattr(NarrowPreemption, "evict", lambda _, names, shares: shares)
    monkeypatch.setattr("solver.checker.ledger_check.LedgerCheck.refused_promise", lambda *_: ())
    lent.asks("one", 2)
    lent.asks("two", 2)
    monkeypatch.undo()
    lent.one_pass()
    assert lent.narrow.fault != ""


def test_what_a_queue_holds_less_by_itself_may_give_others_a_right_to_stay(lent: LentSite) -> None:
    """The first job of the queue ends: another may lie inside its guarantee from then on, so none is asked."""
    lent.site.store.jobs.request_cancel(JobName("lent-0"), "ada")
    lent.site.until("lent-0", "cancelled")
    asked = list[str]()
    lent.one_pass(lambda: asked.extend(lent.asks("urgent", 4)))
    assert (asked, lent.holds("urgent"), lent.narrow.fault) == ([], False, "")


def replays_alike(lent: LentSite) -> bool:
    records = [lent.site.store.history.round(number) for number in lent.narrow_rounds()]
    return bool(records) and all(replay(record, optimise).identical for record in records)


def test_a_round_in_which_it_is_known_that_a_job_has_ended_replays_alike(lent: LentSite) -> None:
    """The job that would have been asked first."""
    lent.site.store.jobs.request_cancel(JobName("lent-3"), "ada")
    lent.site.until("lent-3", "cancelled")
    asked = list[str]()
    lent.one_pass(lambda: asked.extend(lent.asks("urgent", 2)))
    assert asked == ["lent-2"]
    assert replays_alike(lent)


def test_a_round_after_which_nobody_leaves_replays_alike(lent: LentSite) -> None:
    """An urgent job waits, and passes on nothing: another, which comes with one that starts, waits for a complete round."""
    lent.site.store.jobs.request_cancel(JobName("lent-3"), "ada")
    lent.site.until("lent-3", "cancelled")
    lent.rest()
    lent.narrow.start([lent.submit("large", 3, tasks=2)])
    assert lent.leaving() == set()
    lent.narrow.start([lent.submit("urgent", 3), lent.submit("small", 1, "training")])
    assert (lent.leaving(), lent.holds("small")) == (set(), True)
    assert replays_alike(lent)
    lent.one_pass()
    assert lent.narrow.fault == ""


def test_an_urgent_job_that_the_round_under_way_has_not_seen_is_not_passed_after_it(lent: LentSite) -> None:
    """It may be served by the next one."""
    lent.site.store.jobs.request_cancel(JobName("lent-3"), "ada")
    lent.site.until("lent-3", "cancelled")
    lent.rest()
    lent.one_pass(lambda: lent.narrow.start([lent.submit("large", 3, tasks=2)]))
    assert lent.asks("urgent", 3) == ()
    lent.one_pass()
    lent.one_pass()
    assert lent.narrow.fault == ""


def test_what_a_round_did_not_do_is_on_record_with_what_follows(lent: LentSite) -> None:
    job = lent.submit("urgent", 2)
    lent.one_pass(lambda: lent.narrow.start([job]))
    assert len(lent.asks("second", 2)) == 1
    last = lent.site.store.history.round(lent.narrow_rounds()[-1]).narrow[-1]
    assert "urgent" in last.undone
    assert replays_alike(lent)


def test_an_urgent_job_that_lost_its_promise_is_served_before_those_that_come_later(lent: LentSite) -> None:
    lent.submit("waits", 2, tasks=2)
    lent.one_pass(lambda: lent.asks("comes", 2))
    assert lent.promised() == {"comes"}
    assert lent.asks("later", 2) == ("lent-1", "lent-2")
    assert lent.promised() == {"comes", "waits"}
    assert replays_alike(lent)
    lent.one_pass()
    assert lent.narrow.fault == ""


def test_so_is_one_that_came_when_nobody_could_leave_any_more(lent: LentSite) -> None:
    """Nodes had changed while the round was decided: what it leaves is known once it is over."""

    def comes() -> None:
        ground = lent.narrow._ground
        assert ground is not None
        ground.world.end_evictions()
        assert lent.asks("first", 2) == ()

    lent.one_pass(comes)
    lent.narrow.free(())
    assert (lent.promised(), len(lent.leaving())) == ({"first"}, 1)
    assert len(lent.asks("second", 2)) == 1
    assert replays_alike(lent)
    lent.one_pass()
    assert lent.narrow.fault == ""
