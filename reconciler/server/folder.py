"""The state folder: what a control plane must not lose, and the lock that keeps a second one out of it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


class FolderUnusableError(Exception):
    """The state folder can't be used: another control plane has it, or the disk refuses."""


@dataclass(frozen=True, slots=True)
class StateFolder:
    """Where each part keeps its own."""

    path: Path

    @property
    def database(self) -> Path:
        """Jobs, what they hold, history."""
        return self.path / "quorate.db"

    @property
    def mirror(self) -> Path:
        """The bare mirror of the policy repository."""
        return self.path / "policy.git"

    @property
    def tasks(self) -> Path:
        """What the local backend keeps: tasks and their logs."""
        return self.path / "tasks"

    @property
    def token(self) -> Path:
        """What clients prove themselves with."""
        return self.path / "token"

    @property
    def alias_key(self) -> Path:
        """What the aliases in published snapshots are made with."""
        return self.path / "alias-key"

    @property
    def alert_secrets(self) -> Path:
        """Files that AlertPolicies name: keys and secret URLs. A person puts them there."""
        return self.path / "alert-secrets"

    @property
    def audit_keys(self) -> Path:
        """What the audit chain is signed with."""
        return self.path / "audit-keys"

    @property
    def audit_anchors(self) -> Path:
        """How far the audit chain was, time after time."""
        return self.path / "audit-anchors"

    @property
    def observed(self) -> Path:
        """What happened on a cluster that another scheduler runs, as a history to be replayed."""
        return self.path / "observed.jsonl.gz"

    @property
    def observed_nodes(self) -> Path:
        """The nodes of that cluster, as a snapshot without jobs."""
        return self.path / "observed-snapshot.json"

    @property
    def comparison(self) -> Path:
        """How rounds compare with what the other scheduler did."""
        return self.path / "observed-comparison.json"

    def has_store(self) -> bool:
        """Whether there is a database to be read. Raises FolderUnusableError where the caller may not look."""
        try:
            self.database.stat()  # Path.exists would raise, or say no, as the version of Python has it.
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise FolderUnusableError(
                f"{self.path}: can't be read ({error.strerror}). Run this as the user of the control plane"
            ) from error
        return True

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep every other control plane out. The system gives the lock back when this process ends, however it ends.

        Raises FolderUnusableError.
        """
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise FolderUnusableError(
                f"{self.path}: can't be used ({error.strerror}). Choose a folder you can write with --state"
            ) from error
        try:
            _take(lock, self.path)
            yield
        finally:
            os.close(lock)


def _take(lock: int, path: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(lock, 20, 0).decode("ascii", "replace").strip() or "unknown"
        raise FolderUnusableError(
            f"{path}: another control plane (process {holder}) uses this state folder. "
            "Stop it, or choose another folder with --state"
        ) from None
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
