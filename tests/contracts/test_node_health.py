"""What every store of nodes' health does."""

from __future__ import annotations

import msgspec
import pytest

from reconciler.model.health_record import HealthFinding, NodeHealth, PartHealth
from reconciler.protocols.backend import Epoch, StaleEpochError
from solver.model.cluster import NodeName
from tests.contracts.stores import LEASE, NOW, Stores

N1, N2 = NodeName("n1"), NodeName("n2")
FINDING = HealthFinding("xid-reset", "gpu-0", "", NOW, NOW, "XID 48", int(NOW), confirmed=True)
SICK = NodeHealth(N1, (FINDING,), (PartHealth("gpu-0", "drained", NOW, "XID 48", NOW.after(5_000)),))


def lead(stores: Stores) -> Epoch:
    return stores.ledger.lead("only", NOW, LEASE)


def test_what_was_kept_is_there_after_a_crash(stores: Stores) -> None:
    stores.health.keep(lead(stores), (msgspec.structs.replace(SICK, node=N2), SICK))
    stores.reopen()
    assert stores.health.all() == (SICK, msgspec.structs.replace(SICK, node=N2))


def test_a_newer_record_takes_the_place_and_one_without_findings_goes(stores: Stores) -> None:
    epoch = lead(stores)
    stores.health.keep(epoch, (SICK,))
    newer = msgspec.structs.replace(SICK, parts=())
    stores.health.keep(epoch, (newer,))
    assert stores.health.all() == (newer,)
    stores.health.keep(epoch, (NodeHealth(N1), NodeHealth(N2)))
    assert stores.health.all() == ()


def test_what_a_person_forgave_outlives_what_the_leader_writes(stores: Stores) -> None:
    epoch = lead(stores)
    stores.health.keep(epoch, (SICK,))
    assert stores.health.forgive(N1, NOW.after(7)) == SICK
    stores.health.keep(epoch, (SICK,))
    assert stores.health.all() == (msgspec.structs.replace(SICK, forgiven_at=NOW.after(7)),)


def test_nothing_is_forgiven_of_a_node_of_which_nothing_is_known(stores: Stores) -> None:
    assert stores.health.forgive(N1, NOW) is None
    assert stores.health.all() == ()


def test_who_does_not_lead_any_more_keeps_nothing(stores: Stores) -> None:
    old = lead(stores)
    stores.ledger.lead("other", NOW.after(LEASE + 1), LEASE)
    with pytest.raises(StaleEpochError):
        stores.health.keep(old, (SICK,))
    assert stores.health.all() == ()
