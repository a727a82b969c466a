"""What every store does for many jobs in one write is what it does for each; see reconciler/protocols."""

from __future__ import annotations

import pytest

from reconciler.model.job_record import JobOutcome
from reconciler.protocols.backend import StaleEpochError
from reconciler.protocols.job_source import UnknownJobError
from solver.model.workload import JobName
from tests.contracts.stores import LEASE, NOW, Stores, claim_of, intent_of, lead, reservation_of, submit, take

A, B, C, D = (JobName(name) for name in "abcd")


def test_of_claims_each_is_judged_as_if_those_before_it_were_written(stores: Stores) -> None:
    epoch = lead(stores)
    for name in "abcd":
        submit(stores, name)
    stores.ledger.reserve(epoch, reservation_of("a", "g1"))
    wanted = [
        claim_of("a", "g1", "g2"),
        claim_of("b", "g2"),
        claim_of("c", "g3"),
        claim_of("x", "g4"),
        claim_of("c", "g5"),
    ]
    refused = stores.ledger.claim_all(epoch, [(claim, intent_of(claim)) for claim in wanted])
    assert {job: str(why) for job, why in refused.items()} == {
        "b": "already held: g2 by a",
        "x": "x does not exist",
        "c": "c still holds the devices of attempt 1",
    }
    assert stores.ledger.claims() == (wanted[0], wanted[2])
    assert [intent.id for intent in stores.ledger.intents()] == ["start/a/1", "start/c/1"]
    assert stores.ledger.reservations() == ()
    assert stores.ledger.last_attempts([A, B, C]) == {A: 1, C: 1}
    with pytest.raises(KeyError):
        stores.ledger.last_attempts([A])[D]


def test_more_than_a_statement_takes_begin_and_end(stores: Stores) -> None:
    epoch, names = lead(stores), [JobName(f"job-{number:04d}") for number in range(510)]
    for name in names:
        submit(stores, name)
    claims = [claim_of(name, f"g-{name}") for name in names]
    assert not stores.ledger.claim_all(epoch, [(claim, intent_of(claim)) for claim in claims])
    assert len(stores.ledger.claims()) == len(stores.ledger.intents()) == len(names)
    stores.ledger.confirm_running_all(epoch, [(name, 1, NOW) for name in names])
    assert stores.ledger.intents() == ()
    assert {claim.running_since for claim in stores.ledger.claims()} == {NOW}
    stores.ledger.confirm_running_all(epoch, [(name, 1, NOW.after(1)) for name in names])
    assert {claim.running_since for claim in stores.ledger.claims()} == {NOW}
    stores.ledger.release_all(epoch, [(name, 1) for name in names[1:]] + [(names[0], 2)], NOW.after(1_000))
    assert [claim.job for claim in stores.ledger.claims()] == names[:1]
    served = stores.ledger.served()
    assert (served.pop(names[0]), set(served.values())) == (0, {1_000})
    stores.jobs.finish_all(epoch, {name: JobOutcome("succeeded", NOW) for name in names})
    assert stores.jobs.live_jobs() == ()
    assert stores.jobs.named([*names, A]) == {name: stores.jobs.job(name) for name in names}


def test_all_jobs_are_finished_or_none_and_the_first_outcome_stays(stores: Stores) -> None:
    epoch = lead(stores)
    for name in "ab":
        submit(stores, name)
    first = JobOutcome("cancelled", NOW, message="first")
    with pytest.raises(UnknownJobError, match="there is no job c"):
        stores.jobs.finish_all(epoch, {A: first, C: first})
    assert [record.name for record in stores.jobs.live_jobs()] == [A, B]
    stores.jobs.finish_all(epoch, {A: first})
    stores.jobs.finish_all(epoch, {A: JobOutcome("failed", NOW), B: first})
    assert [record.outcome for record in stores.jobs.named([A, B]).values()] == [first, first]


def test_of_some_jobs_is_said_what_is_said_of_all(stores: Stores) -> None:
    epoch = lead(stores)
    for name in "abcd":
        submit(stores, name)
    for name, device in (("a", "g1"), ("b", "g2")):
        take(stores, epoch, claim_of(name, device))
    stores.ledger.nominate(epoch, intent_of(claim_of("c", "g3"), "nominate"))
    stores.ledger.reserve(epoch, reservation_of("d", "n1"))
    ledger = stores.ledger
    every = ledger.of([A, B, C, D, JobName("x")])
    assert tuple(every.claims.values()) == ledger.claims()
    assert (sorted(every.intents, key=lambda intent: intent.id), every.reservations) == (
        list(ledger.intents()),
        ledger.reservations(),
    )
    assert every.attempts == ledger.attempts()
    assert ledger.of([]) == ({}, (), (), {})
    (own,) = ledger.of([C]).intents
    assert (ledger.of([C]).claims, own.kind, ledger.of([C]).reservations) == ({}, "nominate", ())
    stores.jobs.finish(epoch, A, JobOutcome("failed", NOW))
    assert (dict(ledger.of([A]).attempts), set(ledger.of([A]).claims)) == ({}, {A})


def test_nothing_is_done_for_nobody(stores: Stores) -> None:
    epoch = lead(stores)
    assert not stores.ledger.claim_all(epoch, [])
    stores.ledger.confirm_running_all(epoch, [])
    stores.ledger.release_all(epoch, [], NOW)
    stores.jobs.finish_all(epoch, {})
    assert not stores.jobs.named([])


def test_a_stale_leader_does_nothing_for_many(stores: Stores) -> None:
    stale = lead(stores, "first")
    lead(stores, "second", NOW.after(LEASE))
    submit(stores, "a")
    claim = claim_of("a", "g1")
    with pytest.raises(StaleEpochError):
        stores.ledger.claim_all(stale, [(claim, intent_of(claim))])
    with pytest.raises(StaleEpochError):
        stores.ledger.confirm_running_all(stale, [(A, 1, NOW)])
    with pytest.raises(StaleEpochError):
        stores.ledger.release_all(stale, [(A, 1)], NOW)
    with pytest.raises(StaleEpochError):
        stores.jobs.finish_all(stale, {A: JobOutcome("failed", NOW)})
