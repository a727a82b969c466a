"""Who is signed in to the console: a secret in a cookie stands for a token that was shown once, or for an identity provider's word.

A session ends with its proof: when a token expires or is no longer in the token file, when an issuer is no longer in the
AccessPolicy as it was, and after a day at the latest. What its user may do is asked of the policy in force with each request, as
for a token.
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
from reconciler.access.policy import SESSION_MAX, OidcIssuer
from reconciler.access.secret_file import OwnTokens, is_among, tokens_of
from reconciler.access.token_file import TokenFileError
from reconciler.access.tokens import UserTokenFile, hash_of
from reconciler.model.clock import Clock
from reconciler.protocols.sessions import ConsoleSession, Proof, Sessions
from solver.model.document import encode

_SECRET_BYTES: Final = 32
_SECRET_CHARACTERS_MAX: Final = 100


class SessionOverError(Exception):
    """The session counts no more; the message says why. Its user signs in again."""


@dataclass(frozen=True, slots=True)
class SessionKeeper:
    """Any thread may ask. `token` and `owner`: of the server's state folder; None: no token is asked for at all."""

    sessions: Sessions
    clock: Clock
    token: OwnTokens | None
    owner: str
    tokens: UserTokenFile | None
    identify: Authenticator

    def begin(self, token: str) -> tuple[str, ConsoleSession]:
        """The secret of a new session, and the session. Raises BadTokenError, IssuerUnreachableError, TokenFileError."""
        if self.token is not None and is_among(token, self.token):
            return self._begun(Caller(self.owner, owner=True), "owner", hash_of(token), SESSION_MAX)
        if not token:
            raise BadTokenError("there is no token")
        caller, issuer = self.identify.proven(token)
        if issuer is None:
            return self._begun(caller, "file", hash_of(token), SESSION_MAX)
        return self._begun(caller, "issuer", _hash_of_issuer(issuer), self._left(caller))

    def begin_at(self, issuer: OidcIssuer, caller: Caller) -> tuple[str, ConsoleSession]:
        """The same for a user that has signed in at an issuer."""
        asked = issuer.session_duration
        lasts = self._left(caller) if asked is None else min(asked, SESSION_MAX)
        return self._begun(caller, "issuer", _hash_of_issuer(issuer), lasts)

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
            raise SessionOverError("what you signed in with is no longer good")
        return msgspec.structs.replace(caller, until=known.until)

    def end(self, secret: str) -> None:
        """Sign out."""
        self.sessions.end(hash_of(secret))

    def _begun(self, caller: Caller, proof: Proof, proof_hash: str, lasts: int) -> tuple[str, ConsoleSession]:
        secret, now = secrets.token_urlsafe(_SECRET_BYTES), self.clock.now()
        groups = tuple(sorted(caller.groups))
        session = ConsoleSession(hash_of(secret), caller.user, groups, proof, proof_hash, now, now.after(lasts))
        self.sessions.begin(session)
        return secret, session

    def _left(self, caller: Caller) -> int:
        """Until the caller's token expires; milliseconds."""
        return SESSION_MAX if caller.until is None else min(SESSION_MAX, caller.until - self.clock.now())

    def _still_proven(self, session: ConsoleSession) -> Caller | None:
        if session.proof == "owner":
            is_same = self.token is not None and session.proof_hash in map(hash_of, tokens_of(self.token))
            return Caller(self.owner, owner=True) if is_same else None
        if session.proof == "file":
            return self._in_file(session.proof_hash)
        # An issuer whose entry has changed may name its users otherwise now.
        if session.proof_hash not in map(_hash_of_issuer, self.identify.identity.oidc):
            return None
        return Caller(session.user, frozenset(session.groups))

    def _in_file(self, token_hash: str) -> Caller | None:
        """As the token file says now, of users that may come in by it."""
        if self.tokens is None or not self.identify.by_file:
            return None
        return self.tokens.caller_of(token_hash)


def _hash_of_issuer(issuer: OidcIssuer) -> str:
    """Of all that the AccessPolicy says of it."""
    return hash_of(encode(issuer).decode())
