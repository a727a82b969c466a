"""Opens the database and runs transactions on it: the epoch is checked inside, and errors say what to do."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec
from sqlalchemy import Connection, Engine, create_engine, event, insert, inspect, select
from sqlalchemy.engine import make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

import reconciler.store.sql.gone_tables  # noqa: F401  (its tables are of the same metadata)
from reconciler.backend import Epoch, StaleEpochError
from reconciler.store.protocols import StoreUnusableError
from reconciler.store.sql.problems import explain
from reconciler.store.sql.tables import SCHEMA_VERSION, leadership, metadata, schema_version
from solver.world.document import decode

BUSY_TIMEOUT_S = 10.0
"""Transactions take milliseconds; who waits this long waits for something that is stuck."""

T = TypeVar("T")


class Database:
    """One SQLite file (given as a path) or PostgreSQL database (given as a URL). Threads may share it.

    Every method raises StoreUnusableError where the database can't do its work; what was committed is kept.
    `failure` is the first of these, for whoever has to end what depends on the database.
    """

    def __init__(self, where: Path | str) -> None:
        self.failure: StoreUnusableError | None = None
        self.place = str(where) if isinstance(where, Path) else make_url(where).render_as_string(hide_password=True)
        with self._errors():
            self.engine = _engine(where)
            # The same connections; transactions begun here take the write lock at once, not at their first write.
            self._writer = self.engine.execution_options(quorate_begin="BEGIN IMMEDIATE")
            self._prepare()

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that sees one state of the database and changes nothing."""
        with self._errors(), self.engine.begin() as connection:
            yield connection

    @contextmanager
    def writing(self, epoch: Epoch | None = None) -> Iterator[Connection]:
        """A transaction that is committed whole at the end, or not at all; with an epoch, only if that one still leads.

        Raises StaleEpochError. The leader's row stays locked until the end, so no epoch can end in between.
        """
        with self._errors(), self._writer.begin() as connection:
            if epoch is not None:
                check_epoch(connection, epoch)
            yield connection

    def read_document(self, stored: str | bytes, kind: type[T]) -> T:
        """A document from a column: JSON, compressed if it is bytes."""
        try:
            return decode(zlib.decompress(stored) if isinstance(stored, bytes) else stored, kind)
        except (msgspec.MsgspecError, zlib.error) as error:
            raise StoreUnusableError(
                f"{self.place}: a stored {kind.__name__} can't be read ({error}). "
                "Restore the database from a backup, and keep the damaged one for examination."
            ) from error

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            cause = error.orig if isinstance(error, DBAPIError) else None
            failure = StoreUnusableError(f"{self.place}: {explain(cause or error)}")
            self.failure = self.failure or failure
            raise failure from error

    def _prepare(self) -> None:
        with self._writer.begin() as connection:
            if not inspect(connection).has_table(schema_version.name):
                metadata.create_all(connection)
                connection.execute(insert(schema_version).values(version=SCHEMA_VERSION))
                connection.execute(insert(leadership).values(id=1, holder="", epoch=0, until=0))
            found = connection.execute(select(schema_version.c.version)).scalar_one()
        if found != SCHEMA_VERSION:
            raise StoreUnusableError(
                f"{self.place}: its schema has version {found}, this program knows version {SCHEMA_VERSION}. "
                "Run the release of Quorate that wrote it, or a newer one."
            )


def check_epoch(connection: Connection, epoch: Epoch) -> None:
    """Refuse a writer that does not lead any more; raises StaleEpochError."""
    newest = connection.execute(select(leadership.c.epoch).with_for_update()).scalar_one()
    if epoch != newest:
        raise StaleEpochError(f"epoch {epoch} is over; epoch {newest} leads")


def _engine(where: Path | str) -> Engine:
    if isinstance(where, str):
        return create_engine(where)
    _create_private(where)
    engine = create_engine(f"sqlite:///{where}", connect_args={"timeout": BUSY_TIMEOUT_S})
    event.listen(engine, "connect", _configure_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _create_private(path: Path) -> None:
    """A job's environment may hold secrets: nobody else reads the file, nor what SQLite puts beside it."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise StoreUnusableError(
            f"{path}: can't be opened ({error.strerror}). Check that its folder exists and that you may write there."
        ) from error


def _configure_sqlite(connection: DBAPIConnection, _: object) -> None:
    # The driver would begin transactions by its own rules; SQLAlchemy begins them in `_begin_sqlite` instead.
    connection.isolation_level = None
    for setting in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        connection.cursor().execute(f"PRAGMA {setting}")


def _begin_sqlite(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("quorate_begin", "BEGIN"))
