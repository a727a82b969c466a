"""Every history keeps these promises; see reconciler/protocols/history.py."""

from __future__ import annotations

from typing import cast

import msgspec
import pytest

from reconciler.protocols.backend import StaleEpochError
from reconciler.protocols.history import Event, EventQuery
from reconciler.protocols.rounds import NarrowRecord, RoundRecord
from reconciler.protocols.store_errors import StoreUnusableError
from solver.model.cluster import GpuType
from solver.model.document import encode
from solver.model.quantities import Duration, MilliGpu
from solver.model.snapshot import snapshot_of
from solver.model.workload import Job, JobName, QueueName
from solver.plan.plan import Bind, Certificate, Inadmissible, LayerResult, Plan, Starts, Waits
from solver.plan.reasons import CapacityReason
from solver.plan.refusals import NeverFits
from solver.policy.policy import Queue, Quota, policy_of
from tests.contracts.simulated_worlds import NODES
from tests.contracts.stores import LEASE, NOW, SPEC, Stores, claim_of, lead

ONE, TWO = MilliGpu.gpus(1), MilliGpu.gpus(2)
H100, Q = GpuType("H100"), QueueName("q")


def record_of(revision: str = "abc") -> RoundRecord:
    jobs = [Job(JobName(name), NOW, SPEC, "ada") for name in ("a", "b", "c")]
    snapshot = snapshot_of(NOW, NODES, jobs)
    policy = policy_of((Queue(Q, quota=(Quota(H100, MilliGpu.gpus(4), MilliGpu.gpus(8), origin="q.yaml:3"),)),))
    plan = Plan(
        snapshot.digest,
        policy.digest,
        (Bind(JobName("a"), 1, claim_of("a", "n1/0", "n1/1").tasks, Duration(300_000)),),
        (
            Starts(JobName("a"), Q, TWO, TWO),
            Waits(JobName("b"), Q, (CapacityReason(H100, ONE, TWO),)),
            Inadmissible(JobName("c"), Q, (NeverFits("worker", H100, 2, ONE, tasks_that_fit=1, largest_task=ONE),)),
        ),
        Certificate("mip", (LayerResult("entitled", 2.0, 2.5, "within-gap"),), 0.5, "highs 1", 0),
    )
    return RoundRecord(0, NOW, revision, snapshot, policy, plan, {"solve": 1.5, "check": 0.25}, "[1, 2]")


def test_a_round_is_read_back_whole(stores: Stores) -> None:
    record = record_of()
    number = stores.history.record_round(lead(stores), record)
    stores.reopen()
    found = stores.history.round(number)
    assert found == msgspec.structs.replace(record, number=number)
    assert encode(found.plan) == encode(record.plan)
    assert found.snapshot.digest == found.plan.snapshot


def test_a_round_that_was_begun_is_kept_as_a_whole_once_it_is(stores: Stores) -> None:
    epoch, whole = lead(stores), record_of()
    stores.history.record_round(epoch, record_of("before"))
    deed = msgspec.structs.replace(whole.plan, verdicts=whole.plan.verdicts[:1])
    number = stores.history.record_round(epoch, msgspec.structs.replace(whole, plan=deed, is_whole=False))
    stores.history.record_round(epoch, record_of("after"))
    assert not stores.history.round(number).is_whole
    stores.history.conclude_round(epoch, msgspec.structs.replace(whole, number=number))
    stores.reopen()
    assert stores.history.round(number) == msgspec.structs.replace(whole, number=number)
    assert [line.revision for line in stores.history.rounds()] == ["after", whole.revision, "before"]
    assert stores.history.rounds()[1] == msgspec.structs.replace(whole.summary, number=number)


def test_a_keyframe_that_is_replaced_leaves_what_follows_it_readable(stores: Stores) -> None:
    epoch, whole = lead(stores), record_of("first")
    number = stores.history.record_round(epoch, msgspec.structs.replace(whole, is_whole=False))
    stores.history.conclude_round(epoch, msgspec.structs.replace(whole, number=number))
    later = stores.history.record_round(epoch, record_of("later"))
    stores.reopen()
    assert [stores.history.round(known).revision for known in (number, later)] == ["first", "later"]


def test_only_the_leader_concludes_a_round_and_only_one_that_is_kept(stores: Stores) -> None:
    stale = lead(stores)
    number = stores.history.record_round(stale, msgspec.structs.replace(record_of(), is_whole=False))
    epoch = lead(stores, "second", NOW.after(LEASE))
    whole = msgspec.structs.replace(record_of(), number=number)
    with pytest.raises(StaleEpochError):
        stores.history.conclude_round(stale, whole)
    assert not stores.history.round(number).is_whole
    with pytest.raises(KeyError, match="there is no round"):
        stores.history.conclude_round(epoch, msgspec.structs.replace(whole, number=number + 1))
    stores.history.conclude_round(epoch, whole)
    assert stores.history.round(number).is_whole


def test_rounds_are_numbered_upwards_and_listed_newest_first(stores: Stores) -> None:
    epoch = lead(stores)
    numbers = [stores.history.record_round(epoch, record_of(revision)) for revision in ("x", "y", "z")]
    assert numbers == sorted(set(numbers))
    assert [summary.revision for summary in stores.history.rounds()] == ["z", "y", "x"]
    assert [summary.number for summary in stores.history.rounds(limit=2)] == [numbers[2], numbers[1]]


def test_a_summary_counts_what_the_plan_said(stores: Stores) -> None:
    number = stores.history.record_round(lead(stores), record_of())
    (summary,) = stores.history.rounds()
    assert summary == msgspec.structs.replace(record_of().summary, number=number)
    assert (summary.starts, summary.waits, summary.inadmissible) == (1, 1, 1)
    assert (summary.stage, summary.duration_ms, summary.time) == ("mip", 1.75, NOW)
    assert summary.verdicts.startswith("sha256:")


def narrow_record(base: int, *came: str) -> NarrowRecord:
    jobs = tuple(Job(JobName(name), NOW, SPEC, "ada") for name in came)
    steps = (Bind(jobs[0].name, 1, claim_of("a", "n1/0").tasks, Duration(300_000)),)
    return NarrowRecord(0, NOW, "abc", base, (), (), jobs, steps, {"narrow": 2.0}, verdicts="sha256:said")


def test_what_was_started_alone_is_read_with_the_round_that_it_was_based_on(stores: Stores) -> None:
    epoch, history = lead(stores), stores.history
    history.record_round(epoch, record_of("before"))
    base, other = (history.record_round(epoch, record_of(revision)) for revision in ("abc", "other"))
    first = history.record_narrow(epoch, narrow_record(base, "x"))
    history.record_narrow(epoch, narrow_record(other, "of-other"))
    second = history.record_narrow(epoch, narrow_record(base, "y", "z"))
    stores.reopen()
    found = stores.history.round(second)
    assert (found.number, found.plan) == (second, record_of("abc").plan)
    kept = [narrow_record(base, "x"), narrow_record(base, "y", "z")]
    numbered = [msgspec.structs.replace(one, number=at) for one, at in zip(kept, (first, second), strict=True)]
    assert list(found.narrow) == numbered
    assert stores.history.round(first).narrow == tuple(numbered[:1])
    assert stores.history.round(base).narrow == ()
    line = stores.history.rounds(limit=1)[0]
    assert (line.number, line.stage, line.starts, line.waits, line.verdicts) == (second, "narrow", 1, 1, "sha256:said")
    with pytest.raises(KeyError, match="there is no round 99"):
        stores.history.record_narrow(epoch, narrow_record(99, "x"))


def test_only_the_leader_keeps_what_was_started_alone(stores: Stores) -> None:
    stale = lead(stores)
    base = stores.history.record_round(stale, record_of())
    lead(stores, "second", NOW.after(LEASE))
    with pytest.raises(StaleEpochError):
        stores.history.record_narrow(stale, narrow_record(base, "x"))
    assert len(stores.history.rounds()) == 1


def test_a_round_is_pruned_no_earlier_than_what_was_started_alone_on_it(stores: Stores) -> None:
    epoch, history = lead(stores), stores.history
    old = history.record_round(epoch, record_of())
    late = msgspec.structs.replace(narrow_record(old, "x"), time=NOW.after(10))
    number = history.record_narrow(epoch, late)
    newest = history.record_round(lead(stores, "second", NOW.after(LEASE)), record_of("y"))
    epoch = lead(stores, "second", NOW.after(LEASE))
    assert history.prune_rounds(epoch, NOW.after(5)) == 0
    assert len(history.round(number).narrow) == 1
    assert history.prune_rounds(epoch, NOW.after(11)) == 2
    assert [line.number for line in history.rounds()] == [newest]


def test_an_unknown_round_is_an_error(stores: Stores) -> None:
    assert stores.history.rounds() == ()
    with pytest.raises(KeyError, match="7"):
        stores.history.round(7)


def test_a_stale_leader_records_nothing(stores: Stores) -> None:
    stale = lead(stores, "first")
    lead(stores, "second", NOW.after(LEASE))
    with pytest.raises(StaleEpochError):
        stores.history.record_round(stale, record_of())
    assert stores.history.rounds() == ()


def test_events_of_a_subject_are_read_oldest_first(stores: Stores) -> None:
    events = [Event(NOW.after(-number), "noticed", "a", f"cause {number}", "ada") for number in range(5)]
    for event in events:
        stores.history.record_event(event)
        stores.history.record_event(Event(NOW, "noticed", "b", "another subject", "ada"))
    stores.reopen()
    assert stores.history.events("a") == tuple(events)
    assert stores.history.events("a", limit=2) == tuple(events[3:])
    assert stores.history.events("c") == ()


def test_of_events_that_are_kept_together_all_are_or_none_is(stores: Stores) -> None:
    history = stores.history
    together = [Event(NOW, "bound", subject, "why", "loop") for subject in "bac"]
    history.record_events(together)
    history.record_events([])
    assert [kept.event for kept in history.events_since(0)] == together
    broken = msgspec.structs.replace(together[0], subject=cast("str", None))
    with pytest.raises(StoreUnusableError):
        history.record_events([*together, broken])
    assert [kept.event for kept in history.events_since(0)] == together


def test_events_are_numbered_in_the_order_in_which_they_are_kept(stores: Stores) -> None:
    history = stores.history
    assert history.newest_event() == 0
    told = [
        Event(NOW, "kind", subject, cause, "loop", "evicting", int(cause), "evict", "c")
        for subject, cause in (("a", "1"), ("b", "2"), ("a", "3"))
    ]
    for event in told:
        history.record_event(event)
    kept = history.events_since(0)
    assert [each.event for each in kept] == told
    first, second, third = (each.number for each in kept)
    assert 0 < first < second < third == history.newest_event()
    assert history.events_since(first) == kept[1:]
    assert history.events_since(0, "a") == (kept[0], kept[2])
    assert history.events_since(0, limit=2) == kept[:2]
    assert history.events_since(third) == ()
    assert history.events_before("a") == (kept[0], kept[2])
    assert history.events_before("a", third) == kept[:1]
    assert history.events_before("a", limit=1) == kept[2:]


def test_rounds_before_one(stores: Stores) -> None:
    epoch = lead(stores)
    numbers = [stores.history.record_round(epoch, record_of(revision)) for revision in ("x", "y", "z")]
    assert [line.revision for line in stores.history.rounds(before=numbers[2])] == ["y", "x"]
    assert stores.history.rounds(before=numbers[0]) == ()


def test_old_rounds_are_pruned_but_never_the_newest_and_numbers_go_on(stores: Stores) -> None:
    old = [stores.history.record_round(lead(stores, "first"), record_of("x"))]
    # Rounds of different leaders are not packed together.
    old.append(stores.history.record_round(lead(stores, "second", NOW.after(LEASE)), record_of("y")))
    epoch = lead(stores, "third", NOW.after(LEASE).after(LEASE))
    old.append(stores.history.record_round(epoch, record_of("z")))
    stores.history.record_event(Event(NOW, "submitted", "a", "", "ada"))
    assert stores.history.prune_rounds(epoch, NOW) == 0, "none is of before"
    assert stores.history.prune_rounds(epoch, NOW.after(1), limit=1) == 1
    assert [summary.number for summary in stores.history.rounds()] == [old[2], old[1]]
    assert stores.history.prune_rounds(epoch, NOW.after(1)) == 1
    assert stores.history.prune_rounds(epoch, NOW.after(1)) == 0
    assert [summary.number for summary in stores.history.rounds()] == [old[2]]
    with pytest.raises(KeyError):
        stores.history.round(old[0])
    assert stores.history.record_round(epoch, record_of()) > old[2]
    assert [event.kind for event in stores.history.events("a")] == ["submitted"]


def test_rounds_that_are_packed_together_are_pruned_together(stores: Stores) -> None:
    first = lead(stores)
    for revision in ("x", "y", "z"):
        stores.history.record_round(first, record_of(revision))
    later = msgspec.structs.replace(record_of("later"), time=NOW.after(2))
    kept = stores.history.record_round(first, later)
    second = lead(stores, "second", NOW.after(LEASE))
    newest = stores.history.record_round(second, later)
    assert stores.history.prune_rounds(second, NOW.after(1)) == 0
    assert stores.history.round(kept).revision == "later"
    assert stores.history.prune_rounds(second, NOW.after(3), limit=1) == 4
    assert [summary.number for summary in stores.history.rounds()] == [newest]


def test_every_round_of_a_long_run_is_read_back_whole(stores: Stores) -> None:
    epoch, numbers = lead(stores), dict[str, int]()
    for number in range(250):
        revision = f"revision {number}"
        numbers[revision] = stores.history.record_round(epoch, record_of(revision))
    stores.reopen()
    for revision, number in numbers.items():
        found = stores.history.round(number)
        assert (found.number, found.revision) == (number, revision)
        assert encode(found.plan) == encode(record_of().plan)


def test_a_stale_leader_prunes_nothing(stores: Stores) -> None:
    stale = lead(stores, "first")
    for revision in ("x", "y"):
        stores.history.record_round(stale, record_of(revision))
    lead(stores, "second", NOW.after(LEASE))
    with pytest.raises(StaleEpochError):
        stores.history.prune_rounds(stale, NOW.after(1))
    assert len(stores.history.rounds()) == 2


def test_what_can_not_be_shown_is_kept_all_the_same(stores: Stores) -> None:
    """A task's last words may hold anything; a NUL may come back as the mark of a character that can't be shown."""
    stores.history.record_event(Event(NOW, "failed", "a", "before\0after ü", "plane"))
    (event,) = stores.history.events("a")
    assert event.cause.replace("\0", "\N{REPLACEMENT CHARACTER}") == "before\N{REPLACEMENT CHARACTER}after ü"


def test_events_are_found_by_all_that_is_asked(stores: Stores) -> None:
    told = [
        Event(NOW.after(number), kind, subject, "", actor)
        for number, (kind, subject, actor) in enumerate(
            (("held", "a", "ada"), ("held", "b", "bob"), ("boosted", "a", "ada"), ("cordoned", "n", "ada"))
        )
    ]
    stores.history.record_events(told)

    def found(query: EventQuery, before: int | None = None, limit: int = 100) -> list[int]:
        return [int(kept.event.time - NOW) for kept in stores.history.find_events(query, before, limit)]

    assert found(EventQuery()) == [3, 2, 1, 0]
    assert found(EventQuery(actor="ada")) == [3, 2, 0]
    assert found(EventQuery(kinds=("held", "boosted"), subject="a")) == [2, 0]
    assert found(EventQuery(since=NOW.after(1), until=NOW.after(3))) == [2, 1]
    newest, *_ = stores.history.find_events(EventQuery(), limit=1)
    assert found(EventQuery(actor="ada"), before=newest.number, limit=1) == [2]
    assert found(EventQuery(actor="eve")) == []
