"""What every store of interventions does."""

from __future__ import annotations

import msgspec
import pytest

from reconciler.model.intervention_record import Intervention, Subject
from reconciler.protocols.backend import Epoch, StaleEpochError
from tests.contracts.stores import LEASE, NOW, Stores

NODE = Subject("node", "n1")
CORDON = Intervention("cordon", NODE, "ada", "fan 3 is broken", NOW, NOW.after(4 * 3_600_000))


def lead(stores: Stores) -> Epoch:
    return stores.ledger.lead("only", NOW, LEASE)


def test_what_was_begun_is_in_force_after_a_crash(stores: Stores) -> None:
    kept = stores.interventions.begin(CORDON)
    stores.reopen()
    assert stores.interventions.in_force() == (kept,)
    assert kept == msgspec.structs.replace(CORDON, number=kept.number)
    assert kept.number > 0


def test_the_same_again_is_the_one_that_is_there(stores: Stores) -> None:
    kept = stores.interventions.begin(CORDON)
    again = stores.interventions.begin(msgspec.structs.replace(CORDON, at=NOW.after(5_000)))
    assert again == kept
    assert stores.interventions.newest() == (kept,)


def test_a_request_that_was_sent_twice_is_the_one_that_is_there(stores: Stores) -> None:
    """Each says for how long, and comes at a time of its own."""
    kept = stores.interventions.begin(CORDON)
    lasts = CORDON.until - CORDON.at

    def asked(after_ms: int, lasts_ms: int) -> Intervention:
        at = NOW.after(after_ms)
        return msgspec.structs.replace(CORDON, at=at, until=at.after(lasts_ms))

    assert stores.interventions.begin(asked(60_000, lasts)) == kept
    longer = stores.interventions.begin(asked(1_000, lasts + 1))
    assert longer.number > kept.number
    extended = stores.interventions.begin(asked(61_001, lasts + 1))
    assert extended.number > longer.number
    assert stores.interventions.in_force() == (extended,)


@pytest.mark.parametrize("field", ["author", "reason", "until"])
def test_another_one_takes_its_place_and_both_stay_on_record(stores: Stores, field: str) -> None:
    other = {"author": "bob", "reason": "fan 3 and 4", "until": NOW.after(9_000)}[field]
    first = stores.interventions.begin(CORDON)
    second = stores.interventions.begin(msgspec.structs.replace(CORDON, at=NOW.after(1_000), **{field: other}))
    assert stores.interventions.in_force() == (second,)
    ended = msgspec.structs.replace(first, ended_at=NOW.after(1_000), ended_as="replaced", ended_by=second.author)
    assert stores.interventions.newest() == (second, ended)


def test_kinds_and_subjects_stand_beside_each_other(stores: Stores) -> None:
    job, queue = Subject("job", "a"), Subject("queue", "a")
    asked = (
        CORDON,
        msgspec.structs.replace(CORDON, kind="hold", subject=job),
        msgspec.structs.replace(CORDON, kind="boost", subject=job),
        msgspec.structs.replace(CORDON, kind="hold", subject=queue),
    )
    kept = tuple(map(stores.interventions.begin, asked))
    assert stores.interventions.in_force() == kept
    released = stores.interventions.release("hold", job, NOW, "bob")
    assert released is not None
    assert (released.number, released.ended_as, released.ended_by) == (kept[1].number, "released", "bob")
    assert stores.interventions.in_force() == (kept[0], kept[2], kept[3])


def test_nothing_is_released_twice(stores: Stores) -> None:
    assert stores.interventions.release("cordon", NODE, NOW, "ada") is None
    stores.interventions.begin(CORDON)
    ended = stores.interventions.release("cordon", NODE, NOW, "ada")
    assert stores.interventions.release("cordon", NODE, NOW.after(1), "bob") is None
    assert stores.interventions.newest() == (ended,)


def test_the_first_ending_stays(stores: Stores) -> None:
    kept = stores.interventions.begin(CORDON)
    assert stores.interventions.end(lead(stores), kept.number, NOW.after(7), "expired", "loop")
    assert not stores.interventions.end(lead(stores), kept.number, NOW.after(8), "over", "loop")
    ended = msgspec.structs.replace(kept, ended_at=NOW.after(7), ended_as="expired", ended_by="loop")
    assert (stores.interventions.in_force(), stores.interventions.newest()) == ((), (ended,))


def test_only_the_leader_ends_what_is_over(stores: Stores) -> None:
    kept = stores.interventions.begin(CORDON)
    old = lead(stores)
    stores.ledger.lead("other", NOW.after(2 * LEASE), LEASE)
    with pytest.raises(StaleEpochError):
        stores.interventions.end(old, kept.number, NOW, "expired", "loop")
    assert stores.interventions.in_force() == (kept,)


def test_pages_of_what_was_done_go_from_the_newest_back(stores: Stores) -> None:
    reasons = ["one", "two", "three"]
    kept = [stores.interventions.begin(msgspec.structs.replace(CORDON, reason=reason)) for reason in reasons]
    assert [each.reason for each in stores.interventions.newest(2)] == ["three", "two"]
    assert [each.reason for each in stores.interventions.newest(2, kept[1].number)] == ["one"]
