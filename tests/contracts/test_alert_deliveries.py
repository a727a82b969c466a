"""What every implementation of AlertDeliveries does."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import msgspec
import pytest

from reconciler.model.webhook_delivery import DeliveryResult, DeliveryState
from reconciler.protocols.backend import StaleEpochError
from tests.contracts.stores import LEASE, NOW, Stores, lead

NEW = DeliveryState("ops/chat", 7, "sha256:ab")


def test_a_webhook_begins_once_and_is_kept_over_a_crash(stores: Stores) -> None:
    epoch = lead(stores)
    stores.alerts.begin(epoch, NEW)
    stores.alerts.begin(epoch, msgspec.structs.replace(NEW, cursor=9))
    failed = NEW.after(8, DeliveryResult("it answered 500"), NOW, 0.5)
    stores.alerts.keep(epoch, failed)
    stores.alerts.begin(epoch, DeliveryState("dev/hook", 1, ""))
    stores.reopen()
    assert stores.alerts.webhooks() == (DeliveryState("dev/hook", 1, ""), failed)
    assert stores.alerts.renew(epoch, "ops/chat") == failed
    taken = failed.after(8, DeliveryResult(), NOW, 0.5)
    stores.alerts.keep(epoch, taken)
    stopped = taken.after(9, DeliveryResult("it answered 410", gone=True), NOW, 0.5)
    stores.alerts.keep(epoch, stopped)
    assert stores.alerts.renew(epoch, "ops/chat") == stopped


def test_a_cursor_never_goes_back(stores: Stores) -> None:
    epoch = lead(stores)
    stores.alerts.begin(epoch, NEW)
    stores.alerts.keep(epoch, NEW.past(6))
    assert stores.alerts.webhooks() == (NEW,)


def test_what_is_forgotten_stays_so_until_it_begins_anew(stores: Stores) -> None:
    epoch = lead(stores)
    stores.alerts.begin(epoch, NEW)
    stores.alerts.forget(epoch, "ops/chat")
    stores.alerts.forget(epoch, "ops/chat")
    stores.alerts.keep(epoch, NEW.past(8))
    assert stores.alerts.webhooks() == ()
    assert stores.alerts.renew(epoch, "ops/chat") is None
    stores.alerts.begin(epoch, NEW)
    assert stores.alerts.webhooks() == (NEW,)


def test_only_who_leads_writes_or_begins_to_deliver(stores: Stores) -> None:
    over = lead(stores)
    stores.alerts.begin(over, NEW)
    lead(stores, "second", NOW.after(LEASE + 1))
    writes: tuple[Callable[[], object], ...] = (
        lambda: stores.alerts.begin(over, NEW),
        lambda: stores.alerts.keep(over, NEW.past(8)),
        lambda: stores.alerts.renew(over, "ops/chat"),
        lambda: stores.alerts.forget(over, "ops/chat"),
    )
    for write in writes:
        with pytest.raises(StaleEpochError):
            write()
    assert stores.alerts.webhooks() == (NEW,)


def test_a_state_has_one_name_for_ever(stores: Stores) -> None:
    name = stores.alerts.store_id()
    assert str(uuid.UUID(name)) == name
    stores.reopen()
    assert stores.alerts.store_id() == name
