"""Every ledger keeps these promises; see reconciler/protocols/ledger.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from reconciler.lifecycle.jobs.states import by_job, state_in, state_of
from reconciler.model.cluster_clock import KeptTime
from reconciler.model.failure import Failure
from reconciler.model.job_record import JobOutcome, JobState
from reconciler.protocols.backend import Epoch, StaleEpochError
from reconciler.protocols.history import Event
from reconciler.protocols.ledger import Claim, ClaimRefusedError, Marks, NotLeaderError, PastUse
from solver.model.cluster import DeviceId, GpuType, NodeName
from solver.model.inflight import ConvergenceClock, Ended, Intent, Usage, declared_holder
from solver.model.quantities import Duration, MilliGpu
from solver.model.workload import JobName, QueueName, TaskPlacement
from tests.contracts.stores import LEASE, NOW, Stores, claim_of, intent_of, lead, reservation_of, submit, take


def test_one_leads_until_the_lease_ends(stores: Stores) -> None:
    first = lead(stores, "first")
    with pytest.raises(NotLeaderError, match="first") as refused:
        lead(stores, "second", NOW.after(LEASE - 1))
    assert refused.value.until == NOW.after(LEASE)
    assert lead(stores, "second", NOW.after(LEASE)) > first


def test_renewing_keeps_the_epoch_and_prolongs_the_lease(stores: Stores) -> None:
    first = lead(stores, "first")
    assert lead(stores, "first", NOW.after(LEASE - 1)) == first
    with pytest.raises(NotLeaderError):
        lead(stores, "second", NOW.after(LEASE + 1))


def test_a_lease_is_prolonged_for_who_leads_and_for_nobody_else(stores: Stores) -> None:
    first = lead(stores, "first")
    assert not stores.ledger.renew("second", NOW.after(LEASE - 1), LEASE)
    assert stores.ledger.renew("first", NOW.after(LEASE - 2), LEASE)
    with pytest.raises(NotLeaderError) as refused:
        lead(stores, "second", NOW.after(LEASE))
    assert refused.value.until == NOW.after(2 * LEASE - 2)
    second = lead(stores, "second", NOW.after(2 * LEASE))
    assert not stores.ledger.renew("first", NOW.after(2 * LEASE), LEASE)  # an echo from before changes nothing
    assert lead(stores, "second", NOW.after(2 * LEASE)) == second > first
    stores.ledger.resign(second)
    assert not stores.ledger.renew("second", NOW.after(2 * LEASE), LEASE)
    assert lead(stores, "third", NOW.after(2 * LEASE)) > second


def test_leadership_survives_reopening(stores: Stores) -> None:
    first = lead(stores, "first")
    stores.reopen()
    assert lead(stores, "first") == first
    with pytest.raises(NotLeaderError):
        lead(stores, "second")


def test_who_resigns_is_followed_at_once_under_a_higher_epoch(stores: Stores) -> None:
    first = lead(stores, "first")
    stores.ledger.resign(first)
    second = lead(stores, "second")
    assert second > first
    stores.ledger.resign(first)  # an echo from before changes nothing
    with pytest.raises(NotLeaderError):
        lead(stores, "third")


def test_shares_of_a_device_add_up_to_no_more_than_all_of_it(stores: Stores) -> None:
    def share(job: str, *shares: int) -> Claim:
        known = claim_of(job, *["g1"] * len(shares))
        tasks = tuple(
            msgspec.structs.replace(task, share=MilliGpu(milli))
            for task, milli in zip(known.tasks, shares, strict=True)
        )
        return msgspec.structs.replace(known, tasks=tasks)

    epoch = lead(stores)
    for name in "abcd":
        submit(stores, name)
    take(stores, epoch, share("a", 250, 250))
    with pytest.raises(ClaimRefusedError, match="already held: g1 by a"):
        take(stores, epoch, share("b", 501))
    with pytest.raises(ClaimRefusedError, match="already held: g1 by a"):
        take(stores, epoch, claim_of("b", "g1"))
    take(stores, epoch, share("b", 500))
    with pytest.raises(ClaimRefusedError, match="g1 by a, g1 by b"):
        take(stores, epoch, share("c", 1))
    stores.ledger.release(epoch, JobName("a"), 1, NOW)
    take(stores, epoch, share("c", 500))
    with pytest.raises(ClaimRefusedError, match="twice"):
        take(stores, epoch, share("d", 500, 501))


def test_what_a_user_has_suspended_holds_nothing_until_it_is_resumed(stores: Stores) -> None:
    submit(stores, "a")
    epoch = lead(stores)
    stores.jobs.request_suspend(JobName("a"), "ada")
    with pytest.raises(ClaimRefusedError, match="a was suspended by ada"):
        take(stores, epoch, claim_of("a", "g1"))
    assert stores.ledger.claims() == ()
    stores.jobs.resume(JobName("a"))
    take(stores, epoch, claim_of("a", "g1"))


def test_what_was_reserved_for_a_job_is_free_once_it_starts(stores: Stores) -> None:
    submit(stores, "a")
    epoch = lead(stores)
    stores.ledger.reserve(epoch, reservation_of("a", "g1"))
    assert [kept.holder for kept in stores.ledger.reservations()] == ["a"]
    take(stores, epoch, claim_of("a", "g2"))
    assert stores.ledger.reservations() == ()


def test_an_echo_of_an_earlier_attempt_confirms_nothing_of_a_later_one(stores: Stores) -> None:
    submit(stores, "a")
    epoch = lead(stores)
    take(stores, epoch, claim_of("a", "g1"))
    stores.ledger.release(epoch, JobName("a"), 1, NOW)
    later = claim_of("a", "g1", attempt=2)
    take(stores, epoch, later)
    stores.ledger.confirm_running(epoch, JobName("a"), 1, NOW.after(10))
    assert stores.ledger.claims() == (later,)
    assert stores.ledger.intents() == (intent_of(later),)


def test_a_claim_holds_its_devices_and_starts(stores: Stores) -> None:
    submit(stores, "a")
    claim = claim_of("a", "g1", "g2")
    take(stores, lead(stores), claim)
    stores.reopen()
    assert stores.ledger.claims() == (claim,)
    assert stores.ledger.intents() == (intent_of(claim),)
    assert stores.ledger.attempts() == {"a": 1}
    ledger = stores.ledger
    assert (ledger.held_by(claim.job), ledger.last_attempt(claim.job)) == (claim, 1)
    assert ledger.asked("start/a/1") == intent_of(claim)
    assert (ledger.held_by(JobName("b")), ledger.last_attempt(JobName("b")), ledger.asked("stop/a/1")) == (
        None,
        0,
        None,
    )


def test_a_device_has_one_owner(stores: Stores) -> None:
    epoch = lead(stores)
    for name in ("a", "b"):
        submit(stores, name)
    take(stores, epoch, claim_of("a", "g1", "g2"))
    with pytest.raises(ClaimRefusedError, match="g2 by a") as refused:
        take(stores, epoch, claim_of("b", "g3", "g2"))
    assert refused.value.devices == ("g2",)
    assert [claim.job for claim in stores.ledger.claims()] == ["a"]
    assert [intent.job for intent in stores.ledger.intents()] == ["a"]
    assert stores.ledger.attempts() == {"a": 1}
    take(stores, epoch, claim_of("b", "g3"))


def test_a_claim_that_names_a_device_twice_is_refused_whole(stores: Stores) -> None:
    submit(stores, "a")
    epoch = lead(stores)
    with pytest.raises(ClaimRefusedError):
        take(stores, epoch, claim_of("a", "g1", "g1"))
    assert stores.ledger.claims() == ()
    assert stores.ledger.attempts() == {}


def test_the_time_limit_is_kept_with_the_claim(stores: Stores) -> None:
    epoch = lead(stores)
    for name, limit in (("a", Duration(90_000)), ("b", None)):
        submit(stores, name)
        take(stores, epoch, msgspec.structs.replace(claim_of(name, f"of-{name}"), time_limit=limit))
        stores.ledger.confirm_running(epoch, JobName(name), 1, NOW)
    limited, endless = stores.ledger.claims()
    assert (limited.time_limit, limited.limit_reached_at) == (90_000, NOW.after(90_000))
    assert (endless.time_limit, endless.limit_reached_at) == (None, None)


def test_the_idle_limit_is_kept_with_the_claim(stores: Stores) -> None:
    epoch = lead(stores)
    for name, limit in (("a", Duration(90_000)), ("b", None)):
        submit(stores, name)
        take(stores, epoch, msgspec.structs.replace(claim_of(name, f"of-{name}"), idle_limit=limit))
    assert [claim.idle_limit for claim in stores.ledger.claims()] == [90_000, None]


def test_what_is_remembered_of_an_attempt_lives_as_long_as_its_claim(stores: Stores) -> None:
    epoch = lead(stores)
    submit(stores, "a")
    take(stores, epoch, claim_of("a", "g1"))
    assert stores.ledger.claims()[0].marks == Marks()
    marks = Marks(warned_at=NOW, steps=7, still_since=NOW.after(1))
    for seen in (Marks(stuck_at=NOW), marks, marks):
        stores.ledger.mark(epoch, JobName("a"), 1, seen)
    stores.ledger.mark(epoch, JobName("a"), 2, Marks(stuck_at=NOW))
    stores.reopen()
    assert stores.ledger.claims()[0].marks == marks, "the last of this attempt counts, and that of no other"
    stores.ledger.release(epoch, JobName("a"), 1, NOW)
    stores.ledger.mark(epoch, JobName("a"), 1, marks)
    take(stores, epoch, claim_of("a", "g1", attempt=2))
    assert stores.ledger.claims()[0].marks == Marks()


def test_a_gang_without_gpus_is_claimed_too(stores: Stores) -> None:
    submit(stores, "a")
    take(stores, lead(stores), claim_of("a"))
    assert [claim.job for claim in stores.ledger.claims()] == ["a"]


def test_of_many_at_once_one_gets_the_device(stores: Stores) -> None:
    epoch = lead(stores)
    names = [submit(stores, f"job-{number}") for number in range(8)]

    def try_to_take(name: JobName) -> bool:
        try:
            take(stores, epoch, claim_of(name, f"of-{name}", "wanted"))
        except ClaimRefusedError:
            return False
        return True

    with ThreadPoolExecutor(4) as threads:
        taken = list(threads.map(try_to_take, names))
    assert taken.count(True) == 1
    assert [claim.job for claim in stores.ledger.claims()] == [names[taken.index(True)]]


@pytest.mark.parametrize("attempt", [0, 2])
def test_the_first_attempt_is_number_one(stores: Stores, attempt: int) -> None:
    submit(stores, "a")
    with pytest.raises(ClaimRefusedError, match="not the next"):
        take(stores, lead(stores), claim_of("a", "g1", attempt=attempt))


def test_an_attempt_number_is_used_once(stores: Stores) -> None:
    submit(stores, "a")
    epoch = lead(stores)
    take(stores, epoch, claim_of("a", "g1"))
    with pytest.raises(ClaimRefusedError, match="still holds"):
        take(stores, epoch, claim_of("a", "g2", attempt=2))
    stores.ledger.release(epoch, JobName("a"), 1, NOW)
    with pytest.raises(ClaimRefusedError, match="not the next"):
        take(stores, epoch, claim_of("a", "g1", attempt=1))
    take(stores, epoch, claim_of("a", "g1", attempt=2))
    assert stores.ledger.attempts() == {"a": 2}


def test_an_ended_job_holds_nothing_again(stores: Stores) -> None:
    submit(stores, "a")
    epoch = lead(stores)
    stores.jobs.finish(epoch, JobName("a"), JobOutcome("cancelled", NOW))
    with pytest.raises(ClaimRefusedError, match="ended"):
        take(stores, epoch, claim_of("a", "g1"))


def test_confirming_ends_the_start_intent_and_keeps_the_first_time(stores: Stores) -> None:
    submit(stores, "a")
    epoch = lead(stores)
    take(stores, epoch, claim_of("a", "g1"))
    stores.ledger.confirm_running(epoch, JobName("a"), 1, NOW.after(10))
    stores.ledger.confirm_running(epoch, JobName("a"), 1, NOW.after(99))
    assert stores.ledger.claims()[0].running_since == NOW.after(10)
    assert stores.ledger.intents() == ()


def test_confirming_another_attempt_changes_nothing(stores: Stores) -> None:
    submit(stores, "a")
    epoch = lead(stores)
    take(stores, epoch, claim_of("a", "g1"))
    stores.ledger.confirm_running(epoch, JobName("a"), 2, NOW)
    assert stores.ledger.claims()[0].running_since is None
    assert [intent.id for intent in stores.ledger.intents()] == ["start/a/1"]


def test_asking_again_keeps_the_first_intent(stores: Stores) -> None:
    submit(stores, "a")
    epoch = lead(stores)
    claim = claim_of("a", "g1")
    take(stores, epoch, claim)
    asked = intent_of(claim, "stop")
    assert stores.ledger.ask(epoch, asked)
    later = claim_of("a", "g1")
    assert stores.ledger.ask(epoch, intent_of(later, "stop"))
    assert stores.ledger.intents() == (intent_of(claim), asked)


def test_asking_to_stop_what_holds_nothing_leaves_nothing_behind(stores: Stores) -> None:
    submit(stores, "a")
    epoch = lead(stores)
    assert not stores.ledger.ask(epoch, intent_of(claim_of("a"), "stop"))
    assert stores.ledger.intents() == ()


def test_release_frees_devices_and_ends_intents(stores: Stores) -> None:
    for name in ("a", "b"):
        submit(stores, name)
    epoch = lead(stores)
    take(stores, epoch, claim_of("a", "g1"))
    stores.ledger.ask(epoch, intent_of(claim_of("a", "g1"), "stop"))
    stores.ledger.release(epoch, JobName("a"), 2, NOW)  # another attempt: nothing happens
    assert len(stores.ledger.claims()) == 1
    stores.ledger.release(epoch, JobName("a"), 1, NOW)
    stores.ledger.release(epoch, JobName("a"), 1, NOW)
    assert stores.ledger.claims() == ()
    assert stores.ledger.intents() == ()
    take(stores, epoch, claim_of("b", "g1"))


def test_attempts_are_known_after_release(stores: Stores) -> None:
    submit(stores, "a")
    epoch = lead(stores)
    take(stores, epoch, claim_of("a", "g1"))
    stores.ledger.release(epoch, JobName("a"), 1, NOW)
    stores.reopen()
    assert stores.ledger.attempts() == {"a": 1}


def test_what_attempts_have_run_adds_up_over_them(stores: Stores) -> None:
    submit(stores, "a")
    epoch = lead(stores)
    take(stores, epoch, claim_of("a", "g1", "g2"))
    assert stores.ledger.served().get(JobName("a"), 0) == 0
    stores.ledger.confirm_running(epoch, JobName("a"), 1, NOW)
    stores.ledger.release(epoch, JobName("a"), 1, NOW.after(1_000))
    stores.ledger.release(epoch, JobName("a"), 1, NOW.after(9_000))  # again: nothing happens
    assert stores.ledger.served() == {"a": 2_000}
    take(stores, epoch, claim_of("a", "g1", attempt=2))
    stores.ledger.confirm_running(epoch, JobName("a"), 2, NOW.after(5_000))
    stores.ledger.release(epoch, JobName("a"), 2, NOW.after(5_500))
    take(stores, epoch, claim_of("a", "g1", attempt=3))
    stores.ledger.release(epoch, JobName("a"), 3, NOW.after(9_000))  # it never ran
    stores.reopen()
    assert stores.ledger.served() == {"a": 2_500}


def test_history_is_what_ended_jobs_have_run_once_they_hold_nothing(stores: Stores) -> None:
    submit(stores, "a")
    submit(stores, "b")
    epoch = lead(stores)
    for name, gpu in (("a", "g1"), ("b", "g2")):
        take(stores, epoch, claim_of(name, gpu))
        stores.ledger.confirm_running(epoch, JobName(name), 1, NOW)
    stores.ledger.release(epoch, JobName("a"), 1, NOW.after(3_000))
    assert stores.ledger.history() == ()  # it may run again
    for name in ("a", "b"):
        stores.jobs.finish(epoch, JobName(name), JobOutcome("succeeded", NOW.after(4_000)))
    spec = stores.jobs.job(JobName("a")).spec
    ran = Duration(3_000 * 1_000 // spec.gpus)  # one device was held, whatever it asked for
    stores.reopen()
    assert stores.ledger.history() == (Ended(spec.queue, spec.gpus, NOW, JobName("a"), ran),)
    stores.ledger.release(epoch, JobName("b"), 1, NOW.after(5_000))
    assert {ended.job for ended in stores.ledger.history()} == {"a", "b"}


def test_past_use_is_kept_until_it_is_replaced(stores: Stores) -> None:
    epoch = lead(stores)
    assert stores.ledger.past_use() == PastUse()
    for gpu_hours in (1.5, 2.25):
        past = PastUse((Usage(QueueName("q"), GpuType("H100"), gpu_hours),), NOW)
        stores.ledger.keep_past_use(epoch, past)
        stores.reopen()
        assert stores.ledger.past_use() == past


def promise_to(job: str) -> Intent:
    """Two devices, for a job that waits."""
    tasks = (TaskPlacement("worker", 0, NodeName("n"), (DeviceId("g8"), DeviceId("g9"))),)
    return Intent("nominate", JobName(job), 1, NOW, NOW.after(60_000), tasks)


def test_a_promise_is_kept_until_it_is_replaced_or_withdrawn(stores: Stores) -> None:
    submit(stores, "a")
    epoch = lead(stores)
    stores.ledger.nominate(epoch, promise_to("a"))
    later = msgspec.structs.replace(promise_to("a"), deadline=NOW.after(90_000))
    stores.ledger.nominate(epoch, later)
    stores.reopen()
    assert stores.ledger.intents() == (later,)
    stores.ledger.withdraw(epoch, JobName("a"))
    stores.ledger.withdraw(epoch, JobName("a"))
    assert stores.ledger.intents() == ()


def test_a_promise_ends_with_a_claim_and_with_the_job(stores: Stores) -> None:
    for name in ("a", "b"):
        submit(stores, name)
    epoch = lead(stores)
    for name in ("a", "b"):
        stores.ledger.nominate(epoch, promise_to(name))
    take(stores, epoch, claim_of("a", "g1"))
    stores.jobs.finish(epoch, JobName("b"), JobOutcome("cancelled", NOW))
    assert [intent.kind for intent in stores.ledger.intents()] == ["start"]
    stores.ledger.nominate(epoch, promise_to("a"))  # it holds something: nothing happens
    stores.ledger.nominate(epoch, promise_to("b"))  # it has ended: nothing happens
    assert [intent.kind for intent in stores.ledger.intents()] == ["start"]


def test_a_job_that_moves_is_promised_its_next_attempt_and_keeps_that_when_it_has_left(stores: Stores) -> None:
    submit(stores, "a")
    epoch = lead(stores)
    take(stores, epoch, claim_of("a", "g1"))
    next_attempt = msgspec.structs.replace(promise_to("a"), attempt=2)
    stores.ledger.nominate(epoch, next_attempt)
    stop = msgspec.structs.replace(intent_of(claim_of("a", "g1"), "stop"), beneficiary=JobName("b"), purpose="evict")
    stores.ledger.ask(epoch, stop)
    stores.ledger.release(epoch, JobName("a"), 1, NOW)
    stores.reopen()
    assert stores.ledger.intents() == (next_attempt,)
    take(stores, epoch, claim_of("a", "g8", attempt=2))
    stores.ledger.nominate(epoch, next_attempt)  # said again after a crash: it is there already
    assert [intent.kind for intent in stores.ledger.intents()] == ["start"]


def test_a_job_that_ends_instead_of_moving_is_promised_nothing(stores: Stores) -> None:
    submit(stores, "a")
    epoch = lead(stores)
    take(stores, epoch, claim_of("a", "g1"))
    stores.ledger.nominate(epoch, msgspec.structs.replace(promise_to("a"), attempt=2))
    stores.jobs.finish(epoch, JobName("a"), JobOutcome("succeeded", NOW))
    assert [intent.kind for intent in stores.ledger.intents()] == ["start"]


def test_evictions_are_remembered_over_attempts(stores: Stores) -> None:
    submit(stores, "a")
    epoch = lead(stores)
    for attempt in (1, 2):
        take(stores, epoch, claim_of("a", "g1", attempt=attempt))
        stop = intent_of(claim_of("a", "g1", attempt=attempt), "stop")
        asked = msgspec.structs.replace(stop, asked_at=NOW.after(attempt), beneficiary=JobName("b"), purpose="evict")
        stores.ledger.ask(epoch, asked)
        stores.ledger.ask(epoch, asked)
        stores.ledger.release(epoch, JobName("a"), attempt, NOW)
    stores.reopen()
    assert stores.ledger.evictions() == {"a": (NOW.after(1), NOW.after(2))}


def test_a_stop_is_staged_and_called_off_until_the_gang_is_told_to_end(stores: Stores) -> None:
    submit(stores, "a")
    epoch = lead(stores)
    take(stores, epoch, claim_of("a", "g1"))
    waits = msgspec.structs.replace(
        intent_of(claim_of("a", "g1"), "stop"), beneficiary=JobName("b"), purpose="evict", stage="waits-to-save"
    )
    stores.ledger.stage(epoch, waits)
    assert [intent.kind for intent in stores.ledger.intents()] == ["start"], "there is nothing to stage"
    stores.ledger.ask(epoch, waits)
    stores.ledger.call_off(epoch, JobName("a"), 1)
    stores.ledger.call_off(epoch, JobName("a"), 1)
    assert stores.ledger.evictions() == {}
    stores.ledger.ask(epoch, waits)
    ends = msgspec.structs.replace(waits, stage="ends", staged_at=NOW.after(5))
    stores.ledger.stage(epoch, ends)
    stores.ledger.call_off(epoch, JobName("a"), 1)
    stores.reopen()
    assert ends in stores.ledger.intents()
    assert list(stores.ledger.evictions()) == ["a"]


def test_a_stop_for_nobodys_sake_is_no_eviction(stores: Stores) -> None:
    submit(stores, "a")
    epoch = lead(stores)
    take(stores, epoch, claim_of("a", "g1"))
    stores.ledger.ask(epoch, intent_of(claim_of("a", "g1"), "stop"))
    assert stores.ledger.evictions() == {}


def test_a_stale_leader_writes_nothing(stores: Stores) -> None:
    for name in ("a", "b"):
        submit(stores, name)
    stale = lead(stores, "first")
    claim = claim_of("a", "g1")
    take(stores, stale, claim)
    lead(stores, "second", NOW.after(LEASE))
    writes: tuple[Callable[[], object], ...] = (
        lambda: take(stores, stale, claim_of("b", "g2")),
        lambda: stores.ledger.ask(stale, intent_of(claim, "stop")),
        lambda: stores.ledger.confirm_running(stale, JobName("a"), 1, NOW),
        lambda: stores.ledger.release(stale, JobName("a"), 1, NOW),
        lambda: stores.ledger.mark(stale, JobName("a"), 1, Marks(stuck_at=NOW)),
        lambda: stores.ledger.keep_past_use(stale, PastUse((), NOW)),
        lambda: stores.ledger.nominate(stale, promise_to("b")),
        lambda: stores.ledger.withdraw(stale, JobName("b")),
        lambda: stores.ledger.reserve(stale, reservation_of("b", "n1")),
        lambda: stores.ledger.unreserve(stale, JobName("b")),
    )
    for write in writes:
        with pytest.raises(StaleEpochError):
            write()
    assert stores.ledger.past_use() == PastUse()
    assert stores.ledger.claims() == (claim,)
    assert stores.ledger.intents() == (intent_of(claim),)


def test_claims_and_intents_are_sorted(stores: Stores) -> None:
    epoch = lead(stores)
    for number, name in enumerate(("c", "a", "b")):
        submit(stores, name)
        take(stores, epoch, claim_of(name, f"g{number}"))
    assert [claim.job for claim in stores.ledger.claims()] == ["a", "b", "c"]
    assert [intent.id for intent in stores.ledger.intents()] == ["start/a/1", "start/b/1", "start/c/1"]


def test_a_reservation_is_kept_replaced_and_given_up(stores: Stores) -> None:
    for name in ("b", "a"):
        submit(stores, name)
    epoch = lead(stores)
    for name in ("b", "a"):
        stores.ledger.reserve(epoch, reservation_of(name, "n1"))
    moved = reservation_of("a", "n2")
    stores.ledger.reserve(epoch, moved)
    stores.reopen()
    assert stores.ledger.reservations() == (moved, reservation_of("b", "n1"))
    stores.ledger.unreserve(epoch, JobName("a"))
    stores.ledger.unreserve(epoch, JobName("a"))
    assert stores.ledger.reservations() == (reservation_of("b", "n1"),)


def test_a_claim_or_a_promise_ends_what_was_reserved_for_its_gang_and_for_no_other(stores: Stores) -> None:
    for name in ("a", "b", "c"):
        submit(stores, name)
    epoch = lead(stores)
    for name in ("a", "b", "c"):
        stores.ledger.reserve(epoch, reservation_of(name, "n1"))
    take(stores, epoch, claim_of("a", "g1"))
    stores.ledger.reserve(epoch, reservation_of("a", "n1"))  # said again after a crash: it waits no more
    stores.ledger.nominate(epoch, promise_to("c"))
    assert stores.ledger.reservations() == (reservation_of("b", "n1"),)


def test_nothing_is_reserved_for_a_job_that_has_ended_or_never_was(stores: Stores) -> None:
    for name in ("a", "b"):
        submit(stores, name)
    epoch = lead(stores)
    stores.ledger.reserve(epoch, reservation_of("b", "n1"))
    for name in ("a", "b"):
        stores.jobs.finish(epoch, JobName(name), JobOutcome("cancelled", NOW))
    for name in ("a", "nobody"):
        stores.ledger.reserve(epoch, reservation_of(name, "n1"))
    assert stores.ledger.reservations() == ()


def test_what_a_document_keeps_needs_no_job(stores: Stores) -> None:
    epoch = lead(stores)
    held = reservation_of(declared_holder("demo"), "n1")
    stores.ledger.reserve(epoch, held)
    stores.reopen()
    assert stores.ledger.reservations() == (held,)
    stores.ledger.unreserve(epoch, held.holder)
    assert stores.ledger.reservations() == ()


def test_clocks_are_kept_until_they_are_replaced(stores: Stores) -> None:
    epoch = lead(stores)
    assert stores.ledger.clocks() == ()
    clock = ConvergenceClock("c0ffee", QueueName("q"), GpuType("H100"), MilliGpu(8_000), NOW)
    for clocks in ((clock,), ()):
        stores.ledger.keep_clocks(epoch, clocks)
        stores.reopen()
        assert stores.ledger.clocks() == clocks
    lead(stores, "second", NOW.after(LEASE))
    with pytest.raises(StaleEpochError):
        stores.ledger.keep_clocks(epoch, (clock,))


def test_where_the_time_stands_is_kept_until_it_is_replaced_and_wakes_nobody(stores: Stores) -> None:
    epoch = lead(stores)
    assert stores.ledger.kept_time() is None
    written = stores.ledger.written()
    for kept in (KeptTime("a start", 3), KeptTime("database", -3_600_000)):
        stores.ledger.keep_time(epoch, kept)
        stores.reopen()
        assert stores.ledger.kept_time() == kept
    assert stores.ledger.written() == written
    lead(stores, "second", NOW.after(LEASE))
    with pytest.raises(StaleEpochError):
        stores.ledger.keep_time(epoch, KeptTime("a start", 3))


def test_live_jobs_are_counted_by_what_says_where_they_stand(stores: Stores) -> None:
    """As each of them is judged that is read alone."""
    epoch, names = lead(stores), [f"j{number:02}" for number in range(14)]
    for name in names:
        submit(stores, name)
    held = [claim_of(name, f"n1/{name}") for name in names[:7]]
    for claim in held:
        take(stores, epoch, claim)
    stores.ledger.confirm_running_all(epoch, [(claim.job, 1, NOW) for claim in held[:5]])
    for claim, stop in zip(held, ("finish", "evict", "suspend", "finish"), strict=False):
        intent = Intent("stop", claim.job, 1, NOW, NOW.after(1), purpose="evict" if stop == "evict" else "end")
        stores.ledger.ask(
            epoch, msgspec.structs.replace(intent, stage="waits-to-save") if stop == "suspend" else intent
        )
    stores.jobs.finish(epoch, held[3].job, JobOutcome("succeeded", NOW))
    stores.jobs.request_suspend(JobName(names[7]), "ada")
    stores.ledger.nominate(epoch, intent_of(claim_of(names[8], "n2/0"), "nominate"))
    stores.ledger.reserve(epoch, reservation_of(names[9], "n3"))
    again = claim_of(names[10], "n4/0")
    take(stores, epoch, again)
    stores.jobs.retry(epoch, again.job, Failure(1, "exit", NOW, NOW))
    stores.ledger.release(epoch, again.job, 1, NOW)
    stores.jobs.finish(epoch, JobName(names[11]), JobOutcome("cancelled", NOW))
    stores.reopen()
    of = stores.ledger.of([JobName(name) for name in names])
    asked, kept = by_job(of.intents), {each.holder: (each,) for each in of.reservations}
    alone: Counter[JobState] = Counter()
    for record in stores.jobs.live_jobs():
        known = of.claims.get(record.name), asked[record.name], kept.get(record.name, ())
        alone[state_of(record, *known, of.attempts.get(record.name, 0))] += 1
    counted: Counter[JobState] = Counter()
    for standing, number in stores.ledger.standings().items():
        counted[state_in(standing)] += number
    assert counted == alone == {
        "stopping": 1, "evicting": 1, "checkpointing": 1, "running": 1, "starting": 2, "suspended": 1, "reserved": 2,
        "retrying": 1, "queued": 2,
    }  # fmt: skip


def test_every_write_is_counted_but_those_of_leases(stores: Stores) -> None:
    epoch = lead(stores)
    seen = [stores.ledger.written()]
    lead(stores)
    stores.ledger.renew("first", NOW, LEASE)
    stores.ledger.claims()
    with pytest.raises(StaleEpochError):
        stores.ledger.confirm_running_all(Epoch(epoch + 1), [(JobName("a"), 1, NOW)])
    assert stores.ledger.written() == seen[0]
    for write in (
        lambda: submit(stores, "a"),
        lambda: take(stores, epoch, claim_of("a", "n1/0")),
        lambda: stores.jobs.request_cancel(JobName("a"), "ada"),
        lambda: stores.history.record_event(Event(NOW, "kind", "a", "why", "loop")),
    ):
        write()
        stores.reopen()
        seen.append(stores.ledger.written())
    assert seen == sorted(set(seen))
