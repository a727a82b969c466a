"""What every store does of what pods took with them."""

from __future__ import annotations

import msgspec
import pytest

from reconciler.protocols.backend import StaleEpochError
from solver.model.inflight import Ended
from solver.model.quantities import Duration, Instant, MilliGpu
from solver.model.workload import JobName, QueueName
from solver.queueing.durations import HISTORY_JOBS
from tests.contracts.stores import LEASE, NOW, Stores

TRAIN, SERVE = JobName("vision.gang.train"), JobName("vision.gang.serve")
RAN = Ended(QueueName("q"), MilliGpu.gpus(8), NOW, TRAIN, Duration(3_600_000), "batch")


def test_how_long_gangs_ran_is_known_after_a_restart(stores: Stores) -> None:
    epoch = stores.ledger.lead("one", NOW, LEASE)
    later = msgspec.structs.replace(RAN, job=SERVE, submitted_at=NOW.after(5))
    stores.gone_pods.keep_ended(epoch, [RAN, later])
    stores.reopen()
    assert stores.gone_pods.ended() == (later, RAN)


def test_a_gang_that_came_back_and_ended_again_counts_once(stores: Stores) -> None:
    epoch = stores.ledger.lead("one", NOW, LEASE)
    longer = msgspec.structs.replace(RAN, ran=Duration(7_200_000))
    another = msgspec.structs.replace(RAN, submitted_at=NOW.after(1))
    for ended in (RAN, longer, longer, another):
        stores.gone_pods.keep_ended(epoch, [ended])
    assert stores.gone_pods.ended() == (another, longer)


def test_of_many_the_last_submitted_are_kept(stores: Stores) -> None:
    epoch = stores.ledger.lead("one", NOW, LEASE)
    many = [msgspec.structs.replace(RAN, submitted_at=NOW.after(number)) for number in range(HISTORY_JOBS + 2)]
    stores.gone_pods.keep_ended(epoch, many[2:])
    stores.gone_pods.keep_ended(epoch, many[:2])
    assert stores.gone_pods.ended() == tuple(reversed(many[2:]))


def test_evictions_are_kept_called_off_and_forgotten(stores: Stores) -> None:
    epoch, past = stores.ledger.lead("one", NOW, LEASE), stores.gone_pods
    for at in (NOW, NOW.after(5), NOW):
        past.keep_evictions(epoch, [TRAIN], at)
    past.keep_evictions(epoch, [SERVE, TRAIN, SERVE], NOW)
    stores.reopen()
    assert stores.gone_pods.evictions() == {TRAIN: (NOW, NOW.after(5)), SERVE: (NOW,)}
    stores.gone_pods.call_off(epoch, TRAIN, NOW.after(5))
    stores.gone_pods.call_off(epoch, TRAIN, NOW.after(6))
    assert stores.gone_pods.evictions() == {TRAIN: (NOW,), SERVE: (NOW,)}
    for _ in range(2):
        stores.gone_pods.forget(epoch, {SERVE})
        assert stores.gone_pods.evictions() == {TRAIN: (NOW,)}


def test_who_leads_no_more_writes_nothing(stores: Stores) -> None:
    old = stores.ledger.lead("one", NOW, LEASE)
    stores.ledger.lead("two", Instant(NOW + 2 * LEASE), LEASE)
    with pytest.raises(StaleEpochError):
        stores.gone_pods.keep_ended(old, [RAN])
    with pytest.raises(StaleEpochError):
        stores.gone_pods.keep_evictions(old, [TRAIN], NOW)
    assert stores.gone_pods.ended() == ()
    assert stores.gone_pods.evictions() == {}
