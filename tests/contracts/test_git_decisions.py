"""What every store of decisions about following Git does."""

from __future__ import annotations

import msgspec
import pytest

from reconciler.model.git_record import Approval, Suspension
from reconciler.protocols.backend import StaleEpochError
from tests.contracts.stores import LEASE, NOW, Stores, lead

ACCEPTED = Approval(commit="b" * 40, reason="HistoryRewritten", in_place_of="a" * 40, author="ada", why="ok", at=NOW)
AWAY = Suspension(author="ada", why="moving the repository", at=NOW, until=NOW.after(60_000))


def test_an_approval_is_of_one_thing_and_counts_once(stores: Stores) -> None:
    kept = stores.following.approve(ACCEPTED)
    stores.reopen()
    assert stores.following.approval("b" * 40, "HistoryRewritten", "a" * 40) == kept
    assert stores.following.approve(msgspec.structs.replace(ACCEPTED, author="bob")) == kept
    for other in ({"commit": "c" * 40}, {"reason": "PlanDrift"}, {"in_place_of": ""}):
        named = {"commit": "b" * 40, "reason": "HistoryRewritten", "in_place_of": "a" * 40} | other
        assert stores.following.approval(**named) is None
    stores.following.use("b" * 40, NOW.after(5))
    stores.following.use("b" * 40, NOW.after(9))
    assert stores.following.approval("b" * 40, "HistoryRewritten", "a" * 40) is None
    assert stores.following.approvals() == (msgspec.structs.replace(kept, used_at=NOW.after(5)),)
    assert stores.following.approve(ACCEPTED).number > kept.number


def test_a_suspension_holds_until_its_end(stores: Stores) -> None:
    kept = stores.following.suspend(AWAY)
    stores.reopen()
    assert stores.following.suspension(NOW.after(59_999)) == kept
    assert stores.following.suspension(NOW.after(60_000)) is None
    assert stores.following.resume(NOW.after(60_000), "bob") is None


def test_a_suspension_without_an_end_holds_until_somebody_resumes(stores: Stores) -> None:
    kept = stores.following.suspend(msgspec.structs.replace(AWAY, until=None))
    assert stores.following.suspension(NOW.after(10**9)) == kept
    ended = stores.following.resume(NOW.after(7), "bob")
    assert ended == msgspec.structs.replace(kept, ended_at=NOW.after(7), ended_by="bob")
    assert stores.following.suspension(NOW.after(8)) is None
    assert stores.following.resume(NOW.after(9), "bob") is None


@pytest.mark.parametrize("later", [1, 70_000])
def test_another_suspension_takes_the_place_of_the_one_that_is_there(stores: Stores, later: int) -> None:
    first = stores.following.suspend(AWAY)
    assert stores.following.suspend(AWAY) == first
    second = stores.following.suspend(msgspec.structs.replace(AWAY, why="still", at=NOW.after(later), until=None))
    assert stores.following.suspension(NOW.after(later)) == second
    assert second.number > first.number


def test_what_the_leader_has_in_force_is_known_to_those_that_stand_by(stores: Stores) -> None:
    assert stores.following.in_force() == ""
    first = lead(stores, "first")
    for revision in ("abc", "def"):
        stores.following.put_in_force(first, revision)
    stores.reopen()
    assert stores.following.in_force() == "def"
    second = lead(stores, "second", NOW.after(LEASE))
    with pytest.raises(StaleEpochError):
        stores.following.put_in_force(first, "stale")
    stores.following.put_in_force(second, "ghi")
    assert stores.following.in_force() == "ghi"
