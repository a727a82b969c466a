"""Brings a database to the schema of this program, and back by one version, by what each table and column is marked with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from sqlalchemy import Column, Connection, Index, Table, bindparam, delete, func, insert, inspect, select, text, update
from sqlalchemy.schema import CreateColumn

from reconciler.model.job_runs import called
from reconciler.store.schema import READABLE_FROM, SCHEMA_VERSION, metadata
from reconciler.store.tables import groups, jobs, leadership, schema_version

BASELINE: Final = 13
"""The oldest schema that can be brought up to date. What carries no mark is of this version."""

_LOCK: Final = 0x51_55_4F_52
"""Names the lock of PostgreSQL that a change of the schema holds: no row can be locked before there are tables."""


class DowngradeRefusedError(Exception):
    """The database can't be taken back; the message says why and what to do."""


def alone(connection: Connection) -> None:
    """Until the end of the transaction no other process changes the schema. In SQLite a transaction that writes is alone anyway."""
    if connection.dialect.name == "postgresql":
        # Changes of tables may take longer than any other statement of ours.
        connection.execute(text("SET LOCAL statement_timeout = 0"))
        connection.execute(select(func.pg_advisory_xact_lock(_LOCK, func.hashtext(func.current_schema()))))


def bring_up_to_date(connection: Connection) -> str:
    """Make the tables, or those that are missing. Returns what is wrong with a database that this program can't use, or "".

    One that is newer is left as it is, and used if its program said that this one can.
    """
    if not inspect(connection).has_table(schema_version.name):
        metadata.create_all(connection)
        connection.execute(insert(schema_version).values(version=SCHEMA_VERSION, readable_from=READABLE_FROM))
        connection.execute(insert(leadership).values(id=1, holder="", epoch=0, until=0))
        return ""
    problem = misfit_of(connection)
    if not problem and version_of(connection) < SCHEMA_VERSION:
        _upgrade(connection, version_of(connection))
    return problem


def misfit_of(connection: Connection) -> str:
    """Why this program can't read a database as it is, or "". One of an older schema is read without what came since."""
    if not inspect(connection).has_table(schema_version.name):
        return "there is no store in it. Name the database that `quorate run` was given."
    found = version_of(connection)
    if found < BASELINE:
        return f"its schema has version {found}, which is too old. Start a release that knows version {BASELINE} on it first."
    if found > SCHEMA_VERSION:
        readable_from = connection.execute(select(schema_version.c.readable_from)).scalar_one()
        if readable_from > SCHEMA_VERSION:
            return (
                f"its schema has version {found}, this program knows version {SCHEMA_VERSION}. Run the release of Quorate "
                "that wrote it, or a newer one; or take the database back with that release's `quorate store downgrade`."
            )
    return ""


def version_of(connection: Connection) -> int:
    """The schema version of a database that has tables."""
    return int(connection.execute(select(schema_version.c.version)).scalar_one())


def is_in(column: Column[Any], version: int) -> bool:
    """Whether databases of a schema version have a column."""
    return all(marked.info.get("since", BASELINE) <= version for marked in (column, column.table))


def downgrade(connection: Connection) -> int:
    """Take the database back to the version before this program's; returns that. What came since is lost.

    Raises DowngradeRefusedError for one that is not of this program's version.
    """
    found = version_of(connection)
    if found != SCHEMA_VERSION or found <= BASELINE:
        raise DowngradeRefusedError(
            f"its schema has version {found}; this program takes back only version {SCHEMA_VERSION}, to {SCHEMA_VERSION - 1}. "
            "Use the release that knows the database's version."
        )
    connection.execute(update(schema_version).values(version=found - 1))
    for table in reversed(_tables(found)):
        table.drop(connection)
    for column in _columns(found):
        if column.info.get("rows"):
            connection.execute(delete(column.table).where(column.is_not(None)))
        for index in _indexes(column):
            index.drop(connection)
        connection.execute(
            text(f"ALTER TABLE {_quoted(connection, column.table)} DROP COLUMN {_quoted(connection, column)}")
        )
    return found - 1


def _upgrade(connection: Connection, found: int) -> None:
    for version in range(found + 1, SCHEMA_VERSION + 1):
        for table in _tables(version):
            table.create(connection)  # with all columns, also those that came to it later
        for column in _columns(version):
            if column.table.info.get("since", BASELINE) > found:
                continue
            described = str(CreateColumn(column).compile(dialect=connection.dialect)).strip()
            connection.execute(text(f"ALTER TABLE {_quoted(connection, column.table)} ADD COLUMN {described}"))
            for index in _indexes(column):
                index.create(connection)
    _call_again(connection)
    connection.execute(update(schema_version).values(version=SCHEMA_VERSION, readable_from=READABLE_FROM))


def _call_again(connection: Connection) -> None:
    """Say what ids such as `train#2` are called, which a database that was taken back to the release before has forgotten."""
    for table in (jobs, groups):
        forgotten = select(table.c.name).where(table.c.name.contains("#"), table.c.called.is_(None))
        rows = [{"id": name, "as": called(name)} for name in connection.execute(forgotten).scalars()]
        if rows:
            named = update(table).where(table.c.name == bindparam("id"))
            connection.execute(named.values(called=bindparam("as")), rows)


def _tables(version: int) -> list[Table]:
    """Those that came with a version, each after those that it refers to."""
    return [table for table in metadata.sorted_tables if table.info.get("since", BASELINE) == version]


def _columns(version: int) -> Iterator[Column[object]]:
    """Those that came with a version to a table that was there before."""
    for table in metadata.sorted_tables:
        if table.info.get("since", BASELINE) < version:
            yield from (column for column in table.columns if column.info.get("since", BASELINE) == version)


def _indexes(column: Column[object]) -> Iterator[Index]:
    yield from (index for index in column.table.indexes if column.name in index.columns)


def _quoted(connection: Connection, named: Table | Column[object]) -> str:
    """As it stands in a statement. Names are those of tables.py, never a user's."""
    return connection.dialect.identifier_preparer.quote(named.name)
