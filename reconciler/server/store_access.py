"""Opens the store of a control plane, and names this process to it."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from reconciler.access.audit_keys import AuditKeyFile
from reconciler.access.token_file import read_or_make_token
from reconciler.protocols.store_errors import StoreUnusableError
from reconciler.server.settings import Settings, identity_of_this_process
from reconciler.store.reserve import DiskReserve
from reconciler.store.store import SqlStore, open_store

SOLE_HOLDER: Final = "control-plane"
"""SQLite lies in a locked folder, so the holder of the lock leads; and leads at once after a restart."""


class StoreAccess(NamedTuple):
    """`holder`: this process in the lease. `is_shared`: others may lead the same store."""

    store: SqlStore
    holder: str
    is_shared: bool


def opened_store(settings: Settings, closing: ExitStack) -> StoreAccess:
    """The database of `--store`, else SQLite in the state folder. Raises StoreUnusableError, AuditKeyError, TokenFileError."""
    keys = opened_keys(settings)
    if settings.store is None:
        database = settings.folder.database
        reserve = DiskReserve(database.with_name(f"{database.name}-reserve"))
        reserve.begin()
        found = StoreAccess(open_store(database, audit_keys=keys), SOLE_HOLDER, is_shared=False)
        found.store.database.reserve = reserve
    else:
        store = open_store(settings.store.url, settings.store.password_file, audit_keys=keys)
        found = StoreAccess(store, identity_of_this_process(), is_shared=True)
    closing.callback(found.store.close)
    return found


def opened_keys(settings: Settings) -> AuditKeyFile:
    """Those of the audit chain, made at the first start. Raises AuditKeyError, TokenFileError."""
    keys = AuditKeyFile(settings.audit_key_file)
    keys.begin()
    return keys


def tie_to_tasks(store: SqlStore, tasks: Path) -> None:
    """See to it that a store's jobs run below one folder of tasks, whichever control plane leads.

    One that saw only its own folder would take tasks in another for lost, and start them again beside themselves.
    Raises StoreUnusableError, TokenFileError.
    """
    _tie(store, f"as processes of {socket.gethostname()}:{tasks}", read_or_make_token(tasks / "identity", "identity"))


def tie_to_agents(store: SqlStore) -> None:
    """See to it that a store's jobs run on machines with agents, whichever process leads. Raises StoreUnusableError."""
    _tie(store, "on machines with agents", "agents")


def _tie(store: SqlStore, how: str, identity: str) -> None:
    first, _, known = store.ledger.tie(f"{how} {identity}").rpartition(" ")
    if known != identity:
        raise StoreUnusableError(
            f"{store.database.place}: its jobs run {first}, and here they would run {how}. Start this control plane as the others "
            "(--tasks, --agents-listen), or give it a database of its own with --store."
        )
