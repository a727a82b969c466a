"""Every registry of checkpoints keeps these promises; see reconciler/protocols/checkpoints.py."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from reconciler.model.checkpoint_findings import (
    AnyFinding,
    MissingShard,
    UnreadableManifest,
    WrongDigest,
    WrongHash,
    WrongSize,
)
from reconciler.model.checkpoint_record import CheckpointKey, CheckpointRecord
from reconciler.protocols.backend import StaleEpochError
from reconciler.protocols.checkpoints import CheckpointGoneError, CheckpointRegistry
from solver.model.quantities import Instant, Memory
from solver.model.workload import JobName
from tests.contracts.stores import NOW, Stores, lead, submit

DAMAGE = WrongHash("worker.0", "weights")


def checkpoint_of(
    job: str, step: int, attempt: int = 1, at: Instant = NOW, storage: str = "default"
) -> CheckpointRecord:
    url = f"file:///checkpoints/{job}/step-{step:012d}-attempt-{attempt}"
    return CheckpointRecord(JobName(job), attempt, step, storage, url, 4, Memory(2**40), "sha256:ab", at)


def recorded(stores: Stores, *checkpoints: CheckpointRecord) -> list[CheckpointKey]:
    for job in {checkpoint.job for checkpoint in checkpoints}:
        submit(stores, job)
    epoch = lead(stores)
    for checkpoint in checkpoints:
        stores.checkpoints.record(epoch, checkpoint)
    return [checkpoint.key for checkpoint in checkpoints]


def newest_verified(registry: CheckpointRegistry, job: JobName) -> CheckpointRecord | None:
    return next((checkpoint for checkpoint in registry.of(job) if checkpoint.state == "verified"), None)


def test_a_record_is_kept_whole_and_the_first_one_stays(stores: Stores) -> None:
    # A request to save has the number of its instant.
    first = msgspec.structs.replace(checkpoint_of("a", 10**14), answers=int(NOW))
    recorded(stores, first)
    stores.checkpoints.record(lead(stores), msgspec.structs.replace(first, digest="sha256:other"))
    stores.reopen()
    assert stores.checkpoints.of(JobName("a")) == (first,)


def test_the_newest_is_that_of_the_last_attempt_then_of_the_highest_step(stores: Stores) -> None:
    made = [checkpoint_of("a", 100), checkpoint_of("a", 400), checkpoint_of("a", 350, 2), checkpoint_of("b", 1)]
    recorded(stores, *made)
    assert stores.checkpoints.of(JobName("a")) == (made[2], made[1], made[0])
    assert stores.checkpoints.of(JobName("nobody")) == ()


def test_reading_it_again_decides_and_corrupt_stays_corrupt(stores: Stores) -> None:
    old, new = recorded(stores, checkpoint_of("a", 100), checkpoint_of("a", 200))
    registry, epoch = stores.checkpoints, lead(stores)
    assert newest_verified(registry, JobName("a")) is None
    registry.judge(epoch, old, ())
    registry.judge(epoch, new, ())
    assert newest_verified(registry, JobName("a")) == registry.of(JobName("a"))[0]
    registry.judge(epoch, new, (DAMAGE,))
    registry.judge(epoch, new, ())
    assert [(known.state, known.findings) for known in registry.of(JobName("a"))] == [
        ("corrupt", (DAMAGE,)),
        ("verified", ()),
    ]
    assert newest_verified(registry, JobName("a")) == registry.of(JobName("a"))[1]


def test_every_finding_is_kept_as_it_was(stores: Stores) -> None:
    (key,) = recorded(stores, checkpoint_of("a", 1))
    found: tuple[AnyFinding, ...] = (
        UnreadableManifest("it is a poem"),
        WrongDigest(),
        MissingShard("w.0", "x"),
        WrongSize("w.0", "y", Memory(2**40 + 1), Memory(0)),
        DAMAGE,
    )
    stores.checkpoints.judge(lead(stores), key, found)
    stores.reopen()
    assert stores.checkpoints.of(JobName("a"))[0].findings == found


def test_a_deleted_one_stays_known_and_comes_back_by_nothing(stores: Stores) -> None:
    (key,) = recorded(stores, checkpoint_of("a", 1))
    registry, epoch = stores.checkpoints, lead(stores)
    assert registry.holders() == ("a",)
    for _ in range(2):
        registry.delete(epoch, key)
    registry.judge(epoch, key, ())
    registry.record(epoch, checkpoint_of("a", 1))
    assert [known.state for known in registry.of(JobName("a"))] == ["deleted"]
    assert (newest_verified(registry, JobName("a")), registry.unjudged({"default"}), registry.holders()) == (
        None,
        (),
        (),
    )
    with pytest.raises(CheckpointGoneError, match="step 1"):
        registry.resume(epoch, key, 2)


def test_it_is_known_which_attempt_was_begun_from_it(stores: Stores) -> None:
    (key,) = recorded(stores, checkpoint_of("a", 1))
    stores.checkpoints.resume(lead(stores), key, 2)
    assert stores.checkpoints.of(JobName("a"))[0].resumed_by == 2
    with pytest.raises(CheckpointGoneError):
        stores.checkpoints.resume(lead(stores), CheckpointKey(JobName("a"), 1, 2), 2)


def test_what_waits_to_be_read_comes_in_the_order_of_its_record(stores: Stores) -> None:
    made = [
        checkpoint_of("a", 3, at=NOW.after(3)),
        checkpoint_of("b", 9, at=NOW.after(1)),
        checkpoint_of("b", 1, at=NOW.after(2), storage="other"),
        checkpoint_of("c", 5, at=NOW),
    ]
    keys = recorded(stores, *made)
    stores.checkpoints.judge(lead(stores), keys[3], ())
    assert stores.checkpoints.unjudged({"default"}) == (made[1], made[0])
    assert stores.checkpoints.unjudged({"default", "other"}, limit=2) == (made[1], made[2])
    assert stores.checkpoints.unjudged(set()) == ()


def test_who_leads_no_more_writes_nothing(stores: Stores) -> None:
    (key,) = recorded(stores, checkpoint_of("a", 1))
    registry, old = stores.checkpoints, lead(stores)
    stores.ledger.resign(old)
    lead(stores, "second")
    writes: tuple[Callable[[], None], ...] = (
        lambda: registry.record(old, checkpoint_of("a", 2)),
        lambda: registry.judge(old, key, (DAMAGE,)),
        lambda: registry.resume(old, key, 5),
        lambda: registry.delete(old, key),
    )
    for write in writes:
        with pytest.raises(StaleEpochError):
            write()
    assert registry.of(JobName("a")) == (checkpoint_of("a", 1),)
