"""What every store of the console's sessions does."""

from __future__ import annotations

import msgspec

from reconciler.protocols.sessions import ConsoleSession
from tests.contracts.stores import NOW, Stores

ADA = ConsoleSession("sha256:aa", "ada", ("ml",), "file", "sha256:token", NOW, NOW.after(1_000))


def test_a_session_is_found_by_its_secret_also_after_a_restart(stores: Stores) -> None:
    stores.sessions.begin(ADA)
    assert stores.sessions.find("sha256:bb") is None
    stores.reopen()
    assert stores.sessions.find(ADA.secret_hash) == ADA


def test_a_session_that_was_ended_is_gone_and_others_stay(stores: Stores) -> None:
    other = msgspec.structs.replace(ADA, secret_hash="sha256:bb", proof="issuer", proof_hash="", at=NOW.after(1))
    stores.sessions.begin(ADA)
    stores.sessions.begin(other)
    assert stores.sessions.all() == (ADA, other)
    for _ in range(2):
        stores.sessions.end(ADA.secret_hash)
    assert stores.sessions.find(ADA.secret_hash) is None
    assert stores.sessions.all() == (other,)


def test_what_is_over_is_forgotten_when_the_next_begins(stores: Stores) -> None:
    stores.sessions.begin(ADA)
    later = msgspec.structs.replace(ADA, secret_hash="sha256:bb", at=ADA.until, until=ADA.until.after(1))
    stores.sessions.begin(later)
    assert stores.sessions.all() == (later,)
