"""The audit chain of a store: linked by whichever process writes, over pruning, upgrades, copies and new keys."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import delete, func, select, update

from reconciler.access.audit_keys import AuditKeyError, AuditKeyFile, add_key
from reconciler.access.token_file import TokenFileError
from reconciler.analysis.audit.findings import AuditReport
from reconciler.analysis.audit.verification import verified
from reconciler.model.audit import AuditAnchor, AuditEntry
from reconciler.protocols.audit import AuditPlace, entries_of
from reconciler.protocols.history import Event
from reconciler.protocols.rounds import NarrowRecord
from reconciler.store.audit import AuditChain
from reconciler.store.backup import back_up, restore
from reconciler.store.migrations import BASELINE
from reconciler.store.store import SqlStore, open_store
from reconciler.store.tables import audit_links, events, rounds
from tests.contracts.stores import LEASE, NOW, postgresql_schema
from tests.contracts.test_history import record_of
from tests.fresh_store import fresh_store
from tests.reconciler.store.earlier_schemas import take_back

Open = Callable[..., SqlStore]


@pytest.fixture
def keys(tmp_path: Path) -> AuditKeyFile:
    made = AuditKeyFile(tmp_path / "audit-keys")
    made.begin()
    return made


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def opened(request: pytest.FixtureRequest, tmp_path: Path, keys: AuditKeyFile) -> Iterator[Open]:
    """Opens the one database of the test, as often as it is called; with its keys unless told otherwise."""
    found: list[SqlStore] = []

    def opening(place: Path | str) -> Open:
        def one(with_keys: AuditKeyFile | None = keys) -> SqlStore:
            if isinstance(place, Path):
                fresh_store(place).close()
            found.append(open_store(place, lease_clock="caller", audit_keys=with_keys))
            return found[-1]

        return one

    if request.param == "sqlite":
        yield opening(tmp_path / "quorate.db")
    else:
        with postgresql_schema() as url:
            yield opening(url)
            for store in found:
                store.close()
            return
    for store in found:
        store.close()


def event(number: int, actor: str = "ada") -> Event:
    return Event(NOW.after(number * 1_000), "submitted", f"job-{number}", "wert\0 ü", actor)


def verdict(store: SqlStore, keys: AuditKeyFile, *anchors: AuditAnchor) -> AuditReport:
    return verified(entries_of(store.audit), keys.keys(), anchors)


def problems(report: AuditReport) -> list[tuple[str, str, int | None]]:
    return [(each.problem, each.chain, each.record) for each in report.findings]


def fill(store: SqlStore) -> None:
    """Events one by one and together, a round that is concluded, another, and jobs that are started alone."""
    epoch, record = store.ledger.lead("first", NOW, LEASE), record_of()
    store.history.record_event(event(1))
    begun = store.history.record_round(epoch, msgspec.structs.replace(record, is_whole=False))
    store.history.record_events(event(number) for number in range(2, 6))
    base = store.history.record_round(epoch, record_of("def"))
    store.history.conclude_round(epoch, msgspec.structs.replace(record, number=begun))
    narrow = NarrowRecord(0, NOW, "def", base, (), (), (), (), {"decide": 0.1})
    store.history.record_narrow(epoch, narrow)


def test_what_is_recorded_is_linked(opened: Open, keys: AuditKeyFile) -> None:
    store = opened()
    fill(store)
    report = verdict(store, keys, store.audit.anchor(NOW.after(60_000)))
    assert report.is_whole
    assert [(each.chain, each.records, each.links) for each in report.chains] == [("events", 5, 6), ("rounds", 3, 5)]
    assert report.notes == ()


def test_processes_that_write_in_turn_write_one_chain(opened: Open, keys: AuditKeyFile) -> None:
    first, second = opened(), opened()
    for number in range(6):
        (first, second)[number % 2].history.record_event(event(number))
    epoch = first.ledger.lead("first", NOW, LEASE)
    first.history.record_round(epoch, record_of())
    epoch = second.ledger.lead("second", NOW.after(LEASE + 1), LEASE)
    second.history.record_round(epoch, record_of("def"))
    report = verdict(first, keys)
    assert (report.is_whole, report.chains[0].records, report.chains[1].records) == (True, 6, 2)


def test_pages_of_any_size_say_the_same(opened: Open, keys: AuditKeyFile) -> None:
    store = opened(None)
    store.history.record_events(event(number) for number in range(7))
    linking = opened()
    fill(linking)
    whole = list(entries_of(store.audit))
    for limit in (1, 2, 3):
        found: list[AuditEntry] = []
        place = AuditPlace()
        while True:
            entries, following = store.audit.page("events", place, limit)
            found.extend(entries)
            if following is None:
                break
            place = following
        assert found == [each for each in whole if each.chain == "events"]
    assert verdict(store, keys).is_whole


def test_rounds_that_were_pruned_leave_a_signed_note(opened: Open, keys: AuditKeyFile) -> None:
    store = opened()
    epoch = store.ledger.lead("first", NOW, LEASE)
    for number in range(1, 8):
        # Under epochs of their own, so that none is packed against another.
        epoch = store.ledger.lead(f"leader-{number}", NOW.after(number * (LEASE + 1)), LEASE)
        record = msgspec.structs.replace(record_of(), time=NOW.after(number))
        store.history.record_round(epoch, record)
    before = store.audit.anchor(NOW.after(60_000))
    assert store.history.prune_rounds(epoch, NOW.after(3)) == 2
    assert store.history.prune_rounds(epoch, NOW.after(5)) == 2
    assert store.history.prune_rounds(epoch, NOW.after(5)) == 0
    store.history.record_round(epoch, record_of("after"))
    report = verdict(store, keys, before, store.audit.anchor(NOW.after(60_001)))
    assert (problems(report), report.chains[1].records, report.chains[1].first) == ([], 4, 6)
    with store.database.writing() as connection:
        connection.execute(delete(rounds).where(rounds.c.number == 5))
        connection.execute(delete(audit_links).where(audit_links.c.chain == "rounds", audit_links.c.record == 5))
    assert [each.problem for each in verdict(store, keys).findings] == ["removed"], (
        "no more than the note says may be gone"
    )


def test_a_chain_begins_beside_what_was_there_before(opened: Open, keys: AuditKeyFile) -> None:
    fill(opened(None))
    store = opened()
    assert [each.problem for each in verdict(store, keys).findings] == ["unlinked"] * 8
    fill(store)
    report = verdict(store, keys)
    assert (report.is_whole, len(report.notes)) == (True, 2)
    assert "beside 5 records from before" in report.notes[0]
    assert report.notes[1].endswith("which it does not cover")
    with store.database.writing() as connection:
        connection.execute(update(events).where(events.c.number == 3).values(actor="eve"))
    assert problems(verdict(store, keys)) == [("changed-before", "events", 5)]


def test_a_copy_goes_on_and_says_so(opened: Open, keys: AuditKeyFile, tmp_path: Path) -> None:
    store = opened()
    fill(store)
    back_up(store.database, tmp_path / "copy.gz", NOW)
    store.history.record_event(event(99))
    later = store.audit.anchor(NOW.after(99_000))
    other = open_store(tmp_path / "other.db", audit_keys=keys)
    restore(other.database, tmp_path / "copy.gz", AuditChain(keys.keys))
    other.history.record_event(event(100))
    report = verdict(other, keys)
    assert (report.is_whole, len(report.notes)) == (True, 2)
    assert f"a copy of {NOW}" in report.notes[0]
    assert [each.problem for each in verdict(other, keys, later).findings] == ["rewritten"]
    other.close()


def test_what_the_release_before_did_not_link_is_found(opened: Open, keys: AuditKeyFile) -> None:
    store = opened()
    store.history.record_event(event(1))
    opened(None).history.record_event(event(2))
    store.history.record_event(event(3))
    assert problems(verdict(store, keys)) == [("unlinked", "events", 2)]


def test_a_chain_goes_on_after_the_way_back_to_a_release_with_chains(opened: Open, keys: AuditKeyFile) -> None:
    store = opened()
    fill(store)
    anchor = store.audit.anchor(NOW.after(60_000))
    with store.database.changing_schema() as connection:
        take_back(connection, 14)
    again = opened()
    fill(again)
    assert verdict(again, keys, anchor).is_whole


def test_a_chain_begins_anew_after_the_way_back_to_a_release_without(opened: Open, keys: AuditKeyFile) -> None:
    store = opened()
    fill(store)
    anchor = store.audit.anchor(NOW.after(60_000))
    with store.database.changing_schema() as connection:
        take_back(connection, BASELINE)
    again = opened()
    again.history.record_events(event(number) for number in range(10))
    assert verdict(again, keys).is_whole
    assert {each.problem for each in verdict(again, keys, anchor).findings} == {"rewritten", "truncated"}


def test_a_new_key_signs_without_a_restart(opened: Open, keys: AuditKeyFile) -> None:
    store = opened()
    store.history.record_event(event(1))
    old = keys.path.read_text()
    named = add_key(keys.path)
    store.history.record_event(event(2))
    report = verdict(store, keys)
    assert report.is_whole
    assert report.chains[0].keys[1:] == (named,)
    keys.path.write_text(old)
    assert [each.problem for each in verdict(store, keys).findings] == ["unknown-key"]


def test_a_key_that_was_replaced_signs_no_more(opened: Open, keys: AuditKeyFile, tmp_path: Path) -> None:
    store = opened()
    store.history.record_event(event(1))
    thief = AuditKeyFile(tmp_path / "stolen")
    thief.path.write_text(keys.path.read_text())
    thief.path.chmod(0o600)
    add_key(keys.path)
    store.history.record_event(event(2))
    opened(thief).history.record_event(event(3))
    assert problems(verdict(store, keys)) == [("retired-key", "events", 3)]


def test_keys_that_others_can_read_are_refused(keys: AuditKeyFile) -> None:
    keys.path.chmod(0o644)
    with pytest.raises(TokenFileError, match="chmod 600"):
        AuditKeyFile(keys.path).begin()
    keys.path.chmod(0o600)
    keys.path.write_text("short\n")
    with pytest.raises(AuditKeyError, match="holds no audit keys"):
        AuditKeyFile(keys.path).begin()


def test_keys_that_are_gone_are_still_known(opened: Open, keys: AuditKeyFile) -> None:
    store = opened()
    text = keys.path.read_text()
    os.unlink(keys.path)
    store.history.record_event(event(1))
    keys.path.write_text(text)
    keys.path.chmod(0o600)
    assert verdict(store, keys).is_whole


def test_a_write_that_fails_leaves_no_link(opened: Open, keys: AuditKeyFile, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened()
    store.history.record_event(event(1))
    with monkeypatch.context() as broken:
        broken.setattr(AuditKeyFile, "keys", lambda _: 1 / 0)
        chain = AuditChain(lambda: 1 / 0)  # type: ignore[arg-type,return-value]
        store.history._audit = chain
        with pytest.raises(ZeroDivisionError):
            store.history.record_event(event(2))
    with store.database.reading() as connection:
        assert connection.execute(select(func.count()).select_from(events)).scalar_one() == 1
    assert verdict(store, keys).is_whole
