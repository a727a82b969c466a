"""Database errors in words: what is wrong and what a person can do."""

from __future__ import annotations

import sqlite3

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


def explain(error: BaseException) -> str:
    """Problem and fix, and the database's own words in brackets."""
    name = getattr(error, "sqlite_errorname", "") if isinstance(error, sqlite3.Error) else ""
    for code, (problem, fix) in _SQLITE_PROBLEMS.items():
        if name.startswith(code):
            return f"{problem} ({error}). {fix}."
    return f"the database refuses its work ({error}). See its log."
