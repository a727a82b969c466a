"""Database errors in words: what is wrong, what a person can do, and whether it may be over by itself."""

from __future__ import annotations

import sqlite3

from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as NoConnectionLeft

_SQLITE_PROBLEMS = {
    "SQLITE_FULL": ("the disk is full", "Free some space there; everything committed is kept"),
    "SQLITE_CORRUPT": (
        "the file is damaged",
        "Stop Quorate, keep the file for examination, and restore it from a backup",
    ),
    "SQLITE_NOTADB": ("the file is not a database", "Point Quorate at its own file, or restore that from a backup"),
    "SQLITE_BUSY": ("another process keeps it locked", "Find out which (`fuser` with the path) and end it"),
    "SQLITE_READONLY": ("it can't be written", "Check the permissions of the file and of its folder"),
    "SQLITE_CANTOPEN": ("it can't be opened", "Check that its folder exists and that you may write there"),
    "SQLITE_IOERR": ("the disk fails to read or write", "Check the disk; everything committed is kept"),
}

_POSTGRESQL_PROBLEMS = {
    "28": ("it does not let this user in", "Check the user, --store-password-file or PGPASSFILE, and its pg_hba.conf"),
    "3D000": ("there is no such database", "Make it with `createdb`"),
    "42501": ("the user lacks a right", "Let the user own the database: `ALTER DATABASE ... OWNER TO ...`"),
    "53100": ("its disk is full", "Free some space there; everything committed is kept"),
    "53300": ("it has no connection left", "Raise its max_connections, or end the clients that hold them"),
    "25006": ("it is a replica, or closed to writing", "Name the primary, or several hosts, in --store"),
    "57P": ("it is being stopped or started", "Wait; see its log if it does not come back"),
    "57014": ("a statement took too long", "Look for what keeps it busy: `SELECT * FROM pg_stat_activity`"),
    "55P03": ("another session keeps it locked", "Find and end it: `SELECT * FROM pg_stat_activity`"),
    "25P03": ("this process was held up in a transaction", "See why: a paused machine, or one without memory"),
    "40": ("two transactions met", "Nothing: it is tried again"),
    "08": ("it can't be reached", "Check that it runs and listens there, and the network between"),
    "XX00": ("it is damaged", "Stop Quorate, keep the database for examination, and restore it from a backup"),
}
"""By the beginning of an SQLSTATE (PostgreSQL 15 manual, appendix A)."""

_PASSING = ("08", "25006", "25P03", "28", "3D000", "40", "53", "55P03", "57")
"""What may be over without a change of Quorate: a server that restarts, fails over, or is crowded."""

_FULL = ("53100",)


def explain(error: SQLAlchemyError) -> str:
    """Problem and fix, and the database's own words in brackets."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    problem, fix = _problem(error, cause)
    words = " ".join(str(cause).split())
    return f"{problem} ({words}). {fix}."


def may_pass(error: SQLAlchemyError) -> bool:
    """Whether trying again later, with nothing changed here, may succeed. Of a file on this machine only if its disk is full."""
    if isinstance(error, NoConnectionLeft) or is_full(error):
        return True
    if not isinstance(error, DBAPIError) or isinstance(error.orig, sqlite3.Error):
        return False
    return error.connection_invalidated or _sqlstate(error).startswith(_PASSING)


def is_full(error: SQLAlchemyError) -> bool:
    """Whether the database lacks nothing but room on its disk."""
    cause = error.orig if isinstance(error, DBAPIError) else None
    return getattr(cause, "sqlite_errorname", "") == "SQLITE_FULL" or _sqlstate(error).startswith(_FULL)


def _problem(error: SQLAlchemyError, cause: BaseException) -> tuple[str, str]:
    name = getattr(cause, "sqlite_errorname", "") if isinstance(cause, sqlite3.Error) else ""
    for code, known in _SQLITE_PROBLEMS.items():
        if name.startswith(code):
            return known
    state = _sqlstate(error)
    for code, known in _POSTGRESQL_PROBLEMS.items():
        if state.startswith(code):
            return known
    if isinstance(error, NoConnectionLeft):
        return "all its connections are in use", "Wait; see its log if that does not end"
    return "the database refuses its work", "See its log"


def _sqlstate(error: SQLAlchemyError) -> str:
    """Five letters; "08" for a connection that was not made or is lost, which has none; "" for what is no error of PostgreSQL."""
    if not isinstance(error, DBAPIError) or isinstance(error.orig, sqlite3.Error):
        return ""
    state: str | None = getattr(error.orig, "sqlstate", None)
    return state or ("08" if isinstance(error, OperationalError) else "")
