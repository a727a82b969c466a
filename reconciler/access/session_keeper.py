"""Who is signed in to the console: a secret in a cookie stands for a token that was shown once.

A session ends with its token: when that expires, or is no longer in the token file, and after a day at the latest. What its user
may do is asked of the policy in force with each request, as for a token.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import msgspec

from reconciler.access.authenticator import Authenticator
from reconciler.access.caller import Caller
from reconciler.access.oidc import BadTokenError
from reconciler.access.token_file import TokenFileError
from reconciler.access.tokens import UserTokenFile, hash_of
from reconciler.model.clock import Clock
from reconciler.protocols.sessions import ConsoleSession, Proof, Sessions
from solver.model.quantities import Duration

SESSION_MAX: Final = Duration(24 * 3_600_000)
_SECRET_BYTES: Final = 32
_SECRET_CHARACTERS_MAX: Final = 100


class SessionOverError(Exception):
    """The session counts no more; the message says why. Its user signs in again."""


@dataclass(frozen=True, slots=True)
class SessionKeeper:
    """Any thread may ask. `token` and `owner`: of the server's state folder; None: no token is asked for at all."""

    sessions: Sessions
    clock: Clock
    token: str | None
    owner: str
    tokens: UserTokenFile | None
    identify: Authenticator

    def begin(self, token: str) -> tuple[str, ConsoleSession]:
        """The secret of a new session, and the session. Raises BadTokenError, IssuerUnreachableError, TokenFileError."""
        caller, proof = self._proven(token)
        secret, now = secrets.token_urlsafe(_SECRET_BYTES), self.clock.now()
        until = now.after(SESSION_MAX) if caller.until is None else min(now.after(SESSION_MAX), caller.until)
        shown = "" if proof == "issuer" else hash_of(token)
        session = ConsoleSession(hash_of(secret), caller.user, tuple(sorted(caller.groups)), proof, shown, now, until)
        self.sessions.begin(session)
        return secret, session

    def caller(self, secret: str) -> Caller:
        """The user that a browser speaks for. Raises SessionOverError, TokenFileError, and what the store does."""
        return self._counted(self.sessions.find(hash_of(secret)) if len(secret) <= _SECRET_CHARACTERS_MAX else None)

    def over(self, secret_hashes: Collection[str]) -> dict[str, str]:
        """Those of these sessions that count no more, and why: read at once, however many. Raises what the store does."""
        known = {session.secret_hash: session for session in self.sessions.all()} if secret_hashes else {}
        found = dict[str, str]()
        for secret_hash in secret_hashes:
            try:
                self._counted(known.get(secret_hash))
            except (SessionOverError, TokenFileError) as error:
                found[secret_hash] = str(error)
        return found

    def _counted(self, known: ConsoleSession | None) -> Caller:
        if known is None:
            raise SessionOverError("you are not signed in any more")
        if known.until <= self.clock.now():
            raise SessionOverError(f"your session was good until {known.until}")
        caller = self._still_proven(known)
        if caller is None:
            raise SessionOverError("the token that you signed in with is no longer good")
        return msgspec.structs.replace(caller, until=known.until)

    def end(self, secret: str) -> None:
        """Sign out."""
        self.sessions.end(hash_of(secret))

    def _proven(self, token: str) -> tuple[Caller, Proof]:
        if self.token is not None and secrets.compare_digest(token.encode(), self.token.encode()):
            return Caller(self.owner, owner=True), "owner"
        if not token:
            raise BadTokenError("there is no token")
        caller = self.identify(token)
        return caller, "file" if self._in_file(hash_of(token)) else "issuer"

    def _still_proven(self, session: ConsoleSession) -> Caller | None:
        if session.proof == "owner":
            is_same = self.token is not None and secrets.compare_digest(session.token_hash, hash_of(self.token))
            return Caller(self.owner, owner=True) if is_same else None
        if session.proof == "file":
            return self._in_file(session.token_hash)
        return Caller(session.user, frozenset(session.groups))

    def _in_file(self, token_hash: str) -> Caller | None:
        """As the token file says now, of users that may come in by it."""
        if self.tokens is None or not self.identify.by_file:
            return None
        return self.tokens.caller_of(token_hash)
