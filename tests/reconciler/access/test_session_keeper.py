"""A session says whose it is for as long as the proof that it began with, and no longer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.access.authenticator import Authenticator
from reconciler.access.caller import Caller
from reconciler.access.oidc import LEEWAY_S, BadTokenError, OidcVerifier
from reconciler.access.policy import AccessPolicy
from reconciler.access.session_keeper import SessionKeeper, SessionOverError
from reconciler.store.sessions import SqlSessions
from solver.model.quantities import Instant
from tests.fresh_store import fresh_store
from tests.reconciler.access.issuer import FakeClock, Issuer, serving
from tests.reconciler.access.test_oidc import identity


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with serving() as running:
        yield running


@pytest.fixture
def sessions(tmp_path: Path) -> Iterator[SqlSessions]:
    store = fresh_store(tmp_path / "quorate.db")
    yield store.sessions
    store.close()


def keeper(sessions: SqlSessions, issuer: Issuer, clock: FakeClock, token: str) -> SessionKeeper:
    access = AccessPolicy(identity=identity(issuer))
    identify = Authenticator(lambda: access, OidcVerifier(clock))
    return SessionKeeper(sessions, clock, token, "alice", None, identify)


def test_one_by_a_token_of_an_issuer_ends_with_the_token(sessions: SqlSessions, issuer: Issuer) -> None:
    clock, now_s = FakeClock(), int(time.time())
    clock.s = now_s
    kept = keeper(sessions, issuer, clock, "owners")
    secret, session = kept.begin(issuer.token(now_s))
    until = Instant((now_s + 600 + LEEWAY_S) * 1000)
    assert (session.proof, session.until, session.proof_hash[:7]) == ("issuer", until, "sha256:")
    # The issuer is not asked again, by this server or another of the store.
    issuer.down = True
    other = keeper(sessions, issuer, clock, "owners")
    assert kept.caller(secret) == other.caller(secret) == Caller("ada", frozenset({"vision"}), until=until)
    clock.s = now_s + 600 + LEEWAY_S
    with pytest.raises(SessionOverError, match="good until"):
        kept.caller(secret)


def test_one_by_the_owners_token_ends_where_that_is_another(sessions: SqlSessions, issuer: Issuer) -> None:
    clock = FakeClock()
    secret, _ = keeper(sessions, issuer, clock, "owners").begin("owners")
    assert keeper(sessions, issuer, clock, "owners").caller(secret).owner
    with pytest.raises(SessionOverError, match="no longer good"):
        keeper(sessions, issuer, clock, "another").caller(secret)


def test_nothing_that_was_made_up_is_a_session(sessions: SqlSessions, issuer: Issuer) -> None:
    kept = keeper(sessions, issuer, FakeClock(), "owners")
    with pytest.raises(BadTokenError):
        kept.begin("made-up")
    for secret in ("", "made-up", "x" * 10_000):
        with pytest.raises(SessionOverError, match="not signed in"):
            kept.caller(secret)
