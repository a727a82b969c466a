"""Sessions of the console, in SQL."""

from __future__ import annotations

from sqlalchemy import bindparam, delete, insert, select

from reconciler.protocols.sessions import ConsoleSession
from reconciler.store.database import Database
from reconciler.store.tables import sessions
from solver.model.document import encode

_OF_SECRET = select(sessions.c.session).where(sessions.c.secret_hash == bindparam("secret_hash"))
"""Asked with each request of a browser."""


class SqlSessions:
    """Implements Sessions."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, session: ConsoleSession) -> None:
        """One row, and those go that are over."""
        values = {"secret_hash": session.secret_hash, "until": session.until, "session": encode(session).decode()}
        with self._database.writing(counted=False) as connection:
            connection.execute(delete(sessions).where(sessions.c.until <= session.at))
            connection.execute(insert(sessions).values(values))

    def find(self, secret_hash: str) -> ConsoleSession | None:
        """By the key."""
        with self._database.reading() as connection:
            stored = connection.execute(_OF_SECRET, {"secret_hash": secret_hash}).scalar_one_or_none()
        return None if stored is None else self._database.read_document(stored, ConsoleSession)

    def end(self, secret_hash: str) -> None:
        """The row goes."""
        with self._database.writing(counted=False) as connection:
            connection.execute(delete(sessions).where(sessions.c.secret_hash == secret_hash))

    def all(self) -> tuple[ConsoleSession, ...]:
        """By when they began."""
        with self._database.reading() as connection:
            stored = connection.execute(select(sessions.c.session)).scalars().all()
        found = (self._database.read_document(text, ConsoleSession) for text in stored)
        return tuple(sorted(found, key=lambda session: (session.at, session.secret_hash)))
