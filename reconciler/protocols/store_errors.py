"""Why a store can't do its work now: what every protocol of storage may raise."""

from __future__ import annotations


class StoreUnusableError(Exception):
    """The disk is full, the file is corrupt, the database is gone: a person must act; what was committed is kept."""


class StoreUnreachableError(StoreUnusableError):
    """The database does not answer now, as it does not while it restarts or fails over: try again.

    Whether what was being committed is, only reading will tell.
    """


class StoreFullError(StoreUnreachableError):
    """The disk of the database is full: nothing of the transaction is kept, and it can be tried again once there is room."""
