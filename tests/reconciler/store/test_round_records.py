"""How much is stored of rounds, and what is said of records that can't be unpacked."""

from __future__ import annotations

import random
import zlib
from pathlib import Path

import pytest
from sqlalchemy import delete, func, select, update

from reconciler.protocols.backend import Epoch
from reconciler.protocols.store_errors import StoreUnusableError
from reconciler.store.integrity import problems_of
from reconciler.store.round_records import KEYFRAME_EVERY, BadPackingError, Keyframe, pack, unpack
from reconciler.store.store import SqlStore
from reconciler.store.tables import rounds
from solver.model.document import encode
from tests.contracts.stores import LEASE, NOW
from tests.contracts.test_history import record_of
from tests.fresh_store import fresh_store

RECORD = random.Random(1).randbytes(200_000).hex().encode()
"""Nothing in it can be said shorter by itself."""


def test_a_record_that_differs_in_one_place_takes_a_hundredth() -> None:
    changed = RECORD[:100_000] + b"something else" + RECORD[100_000:]
    patch = pack(changed, RECORD)
    assert unpack(patch, RECORD) == changed
    assert len(patch) * 100 < len(pack(changed))


def test_what_came_in_between_or_went_away_does_not_matter() -> None:
    changed = RECORD[300_000:] + RECORD[:50_000] + RECORD[200_000:]
    assert len(pack(changed, RECORD)) * 100 < len(pack(changed))


def test_another_record_becomes_a_keyframe() -> None:
    keyframe = Keyframe(Epoch(1), 7, RECORD, len(pack(RECORD)))
    assert keyframe.patch(RECORD + b"more") is not None
    assert keyframe.patch(random.Random(2).randbytes(200_000).hex().encode()) is None


def test_now_and_then_one_is_whole_so_that_old_ones_can_be_pruned() -> None:
    keyframe = Keyframe(Epoch(1), 7, RECORD, len(pack(RECORD)), patches=KEYFRAME_EVERY - 2)
    assert keyframe.patch(RECORD) is not None
    keyframe.patches += 1
    assert keyframe.patch(RECORD) is None


@pytest.mark.parametrize("keyframe", [b"", b"another one"])
def test_a_patch_of_another_keyframe_is_refused(keyframe: bytes) -> None:
    with pytest.raises(BadPackingError):
        unpack(pack(RECORD + b"x", RECORD), keyframe)


def test_a_record_of_an_older_release_is_read() -> None:
    assert unpack(zlib.compress(RECORD)) == RECORD


@pytest.fixture
def store(tmp_path: Path) -> SqlStore:
    """Of one machine."""
    return fresh_store(tmp_path / "quorate.db")


@pytest.fixture
def three(store: SqlStore) -> list[int]:
    """Rounds of which two are packed against the first."""
    epoch = store.ledger.lead("first", NOW, LEASE)
    return [store.history.record_round(epoch, record_of(revision)) for revision in ("x", "y", "z")]


def test_a_later_round_takes_little(store: SqlStore, three: list[int]) -> None:
    with store.database.reading() as connection:
        stored = connection.execute(select(rounds.c.keyframe, func.length(rounds.c.record)).order_by(rounds.c.number))
        (whole, bytes_of_first), *others = stored.all()
    assert whole == 0
    assert [keyframe for keyframe, _ in others] == [three[0]] * 2
    assert all(size * 5 < bytes_of_first for _, size in others)
    assert bytes_of_first < len(encode(record_of()))


def test_a_keyframe_that_is_gone_is_found(store: SqlStore, three: list[int]) -> None:
    with store.database.writing() as connection:
        connection.execute(delete(rounds).where(rounds.c.number == three[0]))
    with pytest.raises(StoreUnusableError, match="RoundRecord can't be read"):
        store.history.round(three[1])
    gone = f"its keyframe {three[0]} is not there, or can't be read"
    assert list(problems_of(store.database)) == [f"rounds {number}: {gone}" for number in three[1:]]


def test_a_damaged_record_is_found(store: SqlStore, three: list[int]) -> None:
    with store.database.writing() as connection:
        connection.execute(update(rounds).where(rounds.c.number == three[2]).values(record=b"nothing"))
    (found,) = problems_of(store.database)
    assert found.startswith(f"rounds {three[2]}: its record can't be read (")
