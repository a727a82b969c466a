"""The protocol that remembers who is signed in to the console; its suite is tests/contracts/test_sessions.py."""

from __future__ import annotations

from typing import Literal, Protocol

from solver.model.document import Document
from solver.model.quantities import Instant

Proof = Literal["owner", "file", "issuer"]
"""By what a user has signed in: the token of the server's state folder, one of its token file, a token of an identity provider."""


class ConsoleSession(Document, frozen=True):
    """A browser that sends the secret of this `secret_hash` speaks for `user`, of these `groups`, before `until`.

    `proof_hash`: of the token that was shown, or of what the AccessPolicy says of its issuer. The session counts as long as that is
    there.
    """

    secret_hash: str
    user: str
    groups: tuple[str, ...]
    proof: Proof
    proof_hash: str
    at: Instant
    until: Instant


class Sessions(Protocol):
    """Any control plane on the store may write."""

    def begin(self, session: ConsoleSession) -> None:
        """Remember a session, and forget those that are over when it begins."""

    def find(self, secret_hash: str) -> ConsoleSession | None:
        """The session of a secret, also one that is over; None: there is none, or none any more."""

    def end(self, secret_hash: str) -> None:
        """Forget a session. Idempotent."""

    def all(self) -> tuple[ConsoleSession, ...]:
        """Every session that is remembered, the oldest first."""
