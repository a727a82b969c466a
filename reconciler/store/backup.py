"""A copy of a whole database in one file, to be restored into either kind: SQLite on one machine, PostgreSQL on many.

The file is gzip'd JSON, one value a line: a Head, then each row as [TABLE, [VALUE, ...]], then a Tail. Its rows are those of one
transaction, so control planes may go on meanwhile.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, LargeBinary, Table, delete, func, insert, select, text, update

from reconciler.store.audit import AuditChain
from reconciler.store.database import Database
from reconciler.store.ledger import CLUSTER_TIME, TIED_TO
from reconciler.store.migrations import BASELINE, is_in
from reconciler.store.schema import SCHEMA_VERSION, metadata
from reconciler.store.tables import attempts, groups, jobs, kept, leadership, rounds, schema_version
from reconciler.supervisor.taskfiles import sync_folder
from solver.model.document import Document, decode, encode
from solver.model.quantities import Instant

EPOCHS_AHEAD: Final = 1_000_000
"""A restored database gives out epochs above all that were given out after the copy was made, which agents and tasks have
seen: with a lower one no order of its leaders would be taken. Two in a second for five days are fewer."""

ATTEMPTS_AHEAD: Final = 1_000
"""As for epochs: an attempt that was begun after the copy was made must not be taken for the next one of the same job."""

_ROWS_AT_ONCE: Final = 500
_KEPT: Final = (schema_version.name, leadership.name)
"""Of these a new database has its own row."""


class CopyError(Exception):
    """The file can't be written or is no whole copy, or the database is not one to restore into. The message has the fix."""


class Head(Document, frozen=True, omit_defaults=False):
    """The first line. `tables`: the columns of each, in the order of the rows' values."""

    kind: str
    schema_version: int
    epoch: int
    at: Instant
    tables: dict[str, tuple[str, ...]]


class Tail(Document, frozen=True, omit_defaults=False):
    """The last line: how many rows there are, and the SHA-256 of every line before this one."""

    rows: int
    sha256: str


def back_up(database: Database, path: Path, at: Instant) -> Tail:
    """Write a copy; it is there whole, or not at all, also where the machine loses power. Raises CopyError, StoreUnusableError."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        # What jobs were given in their environment is in it.
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            with (
                gzip.GzipFile(fileobj=file, mode="wb", compresslevel=6, mtime=0) as packed,
                database.reading() as connection,
            ):
                tail = _write(connection, packed, at)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
        with suppress(PermissionError):  # of a folder into which one may only write
            sync_folder(str(path.parent))
    except OSError as error:
        raise CopyError(
            f"{path}: can't be written ({error.strerror}). Name a file in a folder that you can write."
        ) from error
    finally:
        beside.unlink(missing_ok=True)
    return tail


def restore(database: Database, path: Path, audit: AuditChain | None = None) -> Head:
    """Fill a database that holds nothing yet, in one transaction; its audit chain says so. Raises CopyError, StoreUnusableError."""
    head = verify(path)
    with database.writing() as connection:
        for table in (jobs, groups, rounds):
            if connection.execute(select(table.c.number).limit(1)).first() is not None:
                raise CopyError(f"{database.place}: it has {table.name} already. Restore into a new database.")
        for table in metadata.sorted_tables:
            if table.name not in _KEPT:
                connection.execute(delete(table))
        for name, lines in groupby(_rows(path), key=lambda line: line[0]):
            if name not in _KEPT:
                _fill(connection, metadata.tables[name], head.tables[name], (values for _, values in lines))
        _go_ahead(connection, head)
        if audit is not None:
            audit.restored(connection, head.at)
    return head


def verify(path: Path) -> Head:
    """Read a copy to its end. Raises CopyError where it is none, is not whole, or of a schema that this program doesn't know."""
    digest, number = hashlib.sha256(), 0
    try:
        with gzip.open(path, "rb") as file:
            before = file.readline()
            head = decode(before, Head)
            for line in file:
                digest.update(before)
                before, number = line, number + 1
            tail = decode(before, Tail)
    except (OSError, EOFError, UnicodeDecodeError, msgspec.MsgspecError) as error:
        raise CopyError(f"{path}: it is no whole copy of a store ({error}). Take another one.") from error
    if (tail.rows, tail.sha256) != (number - 1, digest.hexdigest()):
        raise CopyError(f"{path}: it was changed or damaged since it was written. Take another one.")
    if not BASELINE <= head.schema_version <= SCHEMA_VERSION:
        raise CopyError(
            f"{path}: it is of schema version {head.schema_version}, this program knows {BASELINE} to {SCHEMA_VERSION}. "
            "Restore it with the release that made it, or a newer one."
        )
    return head


def _write(connection: Connection, packed: gzip.GzipFile, at: Instant) -> Tail:
    found = connection.execute(select(schema_version.c.version)).scalar_one()
    epoch = connection.execute(select(leadership.c.epoch)).scalar_one()
    version = min(found, SCHEMA_VERSION)
    copied = {table: [column for column in table.columns if is_in(column, version)] for table in metadata.sorted_tables}
    copied = {table: columns for table, columns in copied.items() if columns}
    names = {str(table.name): tuple(str(column.key) for column in columns) for table, columns in copied.items()}
    head = Head("StoreCopy", version, epoch, at, names)
    digest, number = hashlib.sha256(), 0

    def put(line: bytes) -> None:
        digest.update(line + b"\n")
        packed.write(line + b"\n")

    put(encode(head))
    for table, columns in copied.items():
        ordered = select(*columns).order_by(*table.primary_key.columns).execution_options(yield_per=_ROWS_AT_ONCE)
        for row in connection.execute(ordered):
            put(msgspec.json.encode((str(table.name), tuple(row))))
            number += 1
    tail = Tail(number, digest.hexdigest())
    packed.write(encode(tail) + b"\n")
    return tail


def _rows(path: Path) -> Iterator[tuple[str, list[Any]]]:
    with gzip.open(path, "rb") as file:
        file.readline()
        for line in file:
            value = msgspec.json.decode(line)
            if isinstance(value, list):
                yield value[0], value[1]


def _fill(connection: Connection, table: Table, columns: tuple[str, ...], rows: Iterator[list[Any]]) -> None:
    packed = [place for place, name in enumerate(columns) if isinstance(table.c[name].type, LargeBinary)]
    batch: list[dict[str, Any]] = []
    for values in rows:
        for place in packed:
            values[place] = base64.b64decode(values[place])
        batch.append(dict(zip(columns, values, strict=True)))
        if len(batch) == _ROWS_AT_ONCE:
            connection.execute(insert(table), batch)
            batch = []
    if batch:
        connection.execute(insert(table), batch)


def _go_ahead(connection: Connection, head: Head) -> None:
    """Number on from above whatever was numbered since the copy was made; whose tasks these are, and what time it is,
    is for the next start to say."""
    connection.execute(delete(kept).where(kept.c.what.in_((CLUSTER_TIME, TIED_TO))))
    connection.execute(update(leadership).values(epoch=head.epoch + EPOCHS_AHEAD, holder="", until=0))
    connection.execute(update(attempts).values(last=attempts.c.last + ATTEMPTS_AHEAD))
    begun = select(attempts.c.job)
    never = select(jobs.c.name, ATTEMPTS_AHEAD, 0).where(jobs.c.name.not_in(begun), jobs.c.ended_at.is_(None))  # type: ignore[call-overload]
    connection.execute(insert(attempts).from_select(["job", "last", "served_gpu_ms"], never))
    if connection.dialect.name == "postgresql":
        for table in metadata.sorted_tables:
            if "number" in table.c and table.c.number.autoincrement is True:
                newest = connection.execute(select(func.max(table.c.number))).scalar_one() or 0
                sequence = func.pg_get_serial_sequence(table.name, "number")
                connection.execute(select(func.setval(sequence, newest + 1, text("false"))))
