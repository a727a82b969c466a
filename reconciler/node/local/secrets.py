"""Where the secrets of a control plane lie: a folder for each queue, in which its queues below it find them too."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from reconciler.protocols.backend import GrowGang, StartGang
from reconciler.supervisor.delivery import BYTES_MAX
from solver.model.workload import QueueName, SecretUse


class UnsafeSecretsError(Exception):
    """The folder of secrets is not there, or not only its owner's. A person must change that."""


class SecretSource(Protocol):
    """Says where the supervisors of this machine find secrets: places, and values only to cover them in what is shown."""

    def places(self, order: StartGang | GrowGang, use: SecretUse) -> tuple[Path, ...]:
        """The files in which the tasks of an order look for it, one after the other."""

    def lacking(self, queue: QueueName, uses: Iterable[SecretUse]) -> list[SecretUse]:
        """Those that the queue does not have, as far as is known here."""

    def values(self, queue: QueueName, uses: Iterable[SecretUse]) -> frozenset[bytes]:
        """What these secrets are now, without newlines at their ends; those that no task could be given are left out."""


@dataclass(frozen=True, slots=True)
class SecretFolder:
    """Implements SecretSource on `root`/QUEUE/NAME, or `root`/QUEUE/NAME/KEY. `lineage`: a queue, and those above it."""

    root: Path
    lineage: Callable[[QueueName], Iterable[QueueName]]

    def places(self, order: StartGang | GrowGang, use: SecretUse) -> tuple[Path, ...]:
        """The queue's own, then those of the queues above it."""
        return self._places(order.spec.queue, use)

    def lacking(self, queue: QueueName, uses: Iterable[SecretUse]) -> list[SecretUse]:
        """As SecretSource says."""
        return [use for use in uses if not any(map(os.path.isfile, self._places(queue, use)))]

    def values(self, queue: QueueName, uses: Iterable[SecretUse]) -> frozenset[bytes]:
        """As SecretSource says."""
        return frozenset(value.rstrip(b"\n") for value in self.read(queue, uses).values())

    def read(self, queue: QueueName, uses: Iterable[SecretUse]) -> dict[SecretUse, bytes]:
        """The secrets as they are now; those that no task could be given are left out."""
        found = ((use, _value(self._places(queue, use))) for use in uses)
        return {use: value for use, value in found if value is not None}

    def _places(self, queue: QueueName, use: SecretUse) -> tuple[Path, ...]:
        """Names of queues, secrets and keys are file names: their schemas see to that."""
        folders = (self.root / name / use.name for name in self.lineage(queue))
        return tuple(folder / use.key if use.key else folder for folder in folders)


def check_secret_folder(root: Path) -> None:
    """Raise UnsafeSecretsError unless the folder is this user's, and no other may enter it."""
    try:
        found = root.stat()
    except OSError as error:
        raise UnsafeSecretsError(f"{root}: {error.strerror}. Make it: install -d -m 700 {root}") from error
    if not stat.S_ISDIR(found.st_mode):
        raise UnsafeSecretsError(f"{root}: this is no folder. Give the folder that has a folder for each queue")
    if found.st_uid not in (os.geteuid(), 0):
        raise UnsafeSecretsError(f"{root}: it belongs to user {found.st_uid}. Make it the user's that runs the server")
    if found.st_mode & 0o077:
        raise UnsafeSecretsError(f"{root}: others may read it. Close it: chmod 700 {root}")


def _value(places: Iterable[Path]) -> bytes | None:
    """As a supervisor finds it, which runs as the same user: what it can't be given, no task has."""
    for place in places:
        try:
            with place.open("rb") as file:
                value = file.read(BYTES_MAX + 1)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (IsADirectoryError, PermissionError):
            return None
        return value if len(value) <= BYTES_MAX else None
    return None
