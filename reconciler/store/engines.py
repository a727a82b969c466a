"""Engines for the two databases: how connections are made and what each is told first."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError

from reconciler.access.secret_file import SecretFile
from reconciler.protocols.store_errors import StoreUnusableError

BUSY_TIMEOUT_S = 10.0
"""Transactions take milliseconds; what waits this long waits for something that is stuck."""

IDLE_IN_TRANSACTION_S: Final = 5
"""A process that is held up in a transaction keeps the leader's row locked. The server ends such a session, and does so before
the lease is over (control.LEASE, 10 s), so that a standby need not wait for longer than that."""

LOCK_TIMEOUT_S: Final = 8
"""Longer than the above: what waits for a session that is about to be ended gets its turn."""

STATEMENT_TIMEOUT_S: Final = 60
"""The longest of ours, rows of history deleted by the thousand, take a few."""

_TCP: Final = {
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
    "target_session_attrs": "read-write",
}
"""libpq's words. A server that has vanished is noticed after ten seconds, not after the two hours of TCP; of several hosts
that one is taken which can be written to (PostgreSQL 15 manual, 34.1.2)."""


def postgresql_url(where: str) -> URL:
    """The URL of a PostgreSQL database, with the driver that we use. Raises StoreUnusableError for another."""
    try:
        url = make_url(where)
    except (ArgumentError, ValueError) as error:
        raise StoreUnusableError(f"--store: {error}. Give it as postgresql://USER@HOST:PORT/DATABASE.") from error
    if url.get_backend_name() not in ("postgresql", "postgres"):
        shown = url.render_as_string(hide_password=True)
        raise StoreUnusableError(
            f"{shown}: no store is kept in {url.get_backend_name()}. Give it as postgresql://USER@HOST:PORT/DATABASE, or leave "
            "--store out: SQLite needs no URL."
        )
    return url.set(drivername="postgresql+psycopg")


def postgresql_engine(url: URL, password_file: Path | None) -> Engine:
    """For PostgreSQL. The password file is looked at for each connection, so that a password may be changed meanwhile."""
    settings = {name: value for name, value in _TCP.items() if name not in url.query}
    try:
        engine = create_engine(
            url, connect_args=settings, pool_pre_ping=True, pool_size=5, max_overflow=25, pool_timeout=BUSY_TIMEOUT_S
        )
    except ModuleNotFoundError as error:
        raise StoreUnusableError(
            f"{url.render_as_string(hide_password=True)}: the driver for PostgreSQL is not installed ({error}). "
            "Install quorate[postgresql]."
        ) from error
    if password_file is not None:
        passwords = SecretFile(password_file, read_passwords, StoreUnusableError)

        @event.listens_for(engine, "do_connect")
        def _with_password(dialect: Any, _: Any, given: list[Any], parameters: dict[str, Any]) -> Any:
            return _connected(dialect, given, parameters, passwords())

    event.listen(engine, "connect", _configure_postgresql)
    return engine


def sqlite_engine(path: Path, *, may_create: bool = True) -> Engine:
    """For SQLite. Raises StoreUnusableError."""
    _open_private(path, os.O_CREAT if may_create else 0)
    engine = create_engine(f"sqlite:///{path}", connect_args={"timeout": BUSY_TIMEOUT_S})
    event.listen(engine, "connect", _configure_sqlite)
    if may_create:  # what is read alone was made so: the mode is kept in the file
        event.listen(engine, "connect", _journal_ahead)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _configure_postgresql(connection: Any, _: object) -> None:
    # Not as libpq's `options`: those may come with the URL already.
    connection.autocommit = True
    for name, seconds in (
        ("idle_in_transaction_session_timeout", IDLE_IN_TRANSACTION_S),
        ("lock_timeout", LOCK_TIMEOUT_S),
        ("statement_timeout", STATEMENT_TIMEOUT_S),
    ):
        connection.execute(f"SET {name} = '{seconds}s'")
    # What is said to be committed has to be on disk, and on the replica if there is one that takes over; a database may have
    # been told otherwise for the sake of others. What waits for more than that is left as it is.
    connection.execute(
        "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') IN ('off', 'local')"
    )
    connection.autocommit = False


def _open_private(path: Path, creating: int) -> None:
    """A job's environment may hold secrets: no other account reads the file, nor what SQLite puts beside it."""
    try:
        os.close(os.open(path, creating | os.O_RDWR, 0o600))
    except OSError as error:
        raise StoreUnusableError(
            f"{path}: can't be opened ({error.strerror}). Check that its folder exists and that you may write there."
        ) from error


def _configure_sqlite(connection: DBAPIConnection, _: object) -> None:
    # The driver would begin transactions by its own rules; SQLAlchemy begins them in `_begin_sqlite` instead.
    connection.isolation_level = None
    for setting in ("synchronous=FULL", "foreign_keys=ON"):
        connection.cursor().execute(f"PRAGMA {setting}")


def _journal_ahead(connection: DBAPIConnection, _: object) -> None:
    connection.cursor().execute("PRAGMA journal_mode=WAL")


def _begin_sqlite(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("quorate_begin", "BEGIN"))


def _connected(dialect: Any, given: list[Any], parameters: dict[str, Any], passwords: tuple[str, ...]) -> Any:
    """A connection with the first password that the server takes: while one is being changed there are two."""
    for password in passwords[:-1]:
        # A server that refuses a connection says why in its own language alone, so that any failure may be a refusal.
        with suppress(dialect.loaded_dbapi.OperationalError):
            return dialect.connect(*given, **{**parameters, "password": password})
    return dialect.connect(*given, **{**parameters, "password": passwords[-1]})


def read_passwords(path: Path) -> tuple[str, ...]:
    """Those of a file, one a line. Raises StoreUnusableError where it can't be read, can be read by others, or is empty."""
    try:
        with path.open(encoding="utf-8") as file:
            found = os.fstat(file.fileno())
            passwords = tuple(line for line in file.read().splitlines() if line)
    except (OSError, UnicodeDecodeError) as error:
        raise StoreUnusableError(
            f"{path}: the password can't be read ({error}). Name a file of the server's own."
        ) from error
    if stat.S_IMODE(found.st_mode) & 0o077 or found.st_uid not in (0, os.geteuid()):
        raise StoreUnusableError(f"{path}: others can read or own this password. Change it, and chmod 600 the file.")
    if not passwords:
        raise StoreUnusableError(f"{path}: it is empty. Write the password of the database's user into it.")
    return passwords
