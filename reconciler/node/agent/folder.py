"""The agent's state folder: what it must not lose, and the lock that keeps a second agent out of it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from reconciler.node.local.folders import StateFolders
from reconciler.protocols.backend import Epoch
from reconciler.supervisor.taskfiles import write_durably
from solver.model.cluster import Node
from solver.model.document import decode, encode


class AgentFolderError(Exception):
    """The folder can't be used: another agent has it, or the disk refuses. A person must act."""


@dataclass(frozen=True, slots=True)
class AgentFolder:
    """Where each part lies."""

    path: Path

    @property
    def tasks(self) -> Path:
        """What the local backend keeps: tasks, their logs, and the newest epoch."""
        return self.path / "tasks"

    @property
    def identity(self) -> Path:
        """Key, certificate, and the authorities that it believes."""
        return self.path / "identity.pem"

    @property
    def secrets(self) -> Path:
        """What leads to the secrets of tasks that are about to begin."""
        return self.path / "secrets"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep every other agent out, until this process ends, however it ends. Raises AgentFolderError."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise AgentFolderError(
                f"{self.path}: {error.strerror}. Choose a folder you can write with --state"
            ) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError:
            raise AgentFolderError(
                f"{self.path}: another agent uses this folder. Stop it, or choose another one with --state"
            ) from None
        finally:
            os.close(lock)

    def declared(self) -> Node | None:
        """What a control plane said last that this node is: it holds while there is none."""
        path = self.path / "node.json"
        return decode(path.read_bytes(), Node) if path.exists() else None

    def keep_declared(self, node: Node | None) -> None:
        """Keep it. An agent that is told that its node is nothing keeps nothing."""
        path = self.path / "node.json"
        if node is None:
            path.unlink(missing_ok=True)
        else:
            write_durably(str(path), encode(node).decode())


class Epochs:
    """The newest epoch that the node has seen, on disk where its orders are."""

    def __init__(self, tasks: Path) -> None:
        self._folders = StateFolders(tasks.resolve())

    def seen(self) -> Epoch:
        """0: none."""
        return Epoch(self._folders.epoch())

    def take(self, epoch: Epoch) -> bool:
        """Keep one; False where a newer one was seen."""
        with self._folders.exclusive():
            return self._folders.raise_epoch(epoch)
