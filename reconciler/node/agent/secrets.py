"""Secrets that a control plane has sent with an order: in memory from then until the tasks have begun, and not longer."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path

from reconciler.backends.baremetal.wire import SentSecret
from reconciler.protocols.backend import GrowGang, StartGang
from reconciler.supervisor import delivery
from reconciler.supervisor.taskfiles import sync_folder
from solver.model.workload import JobName, QueueName, SecretUse


class ReceivedSecrets:
    """Implements SecretSource, from files in a folder in memory that this user alone can enter. `link` leads to it.

    It is found again after a restart of the agent; after one of the machine it is gone, and orders are sent anew.
    """

    def __init__(self, link: Path) -> None:
        self._link = link

    def keep(self, job: JobName, attempt: int, secrets: Iterable[SentSecret]) -> None:
        """Write them for the tasks of an order, in place of what came before. Raises OSError."""
        folder = self._made() / f"{job}.{attempt}"
        folder.mkdir(mode=0o700, exist_ok=True)
        for secret in secrets:
            new = folder / "new"
            new.unlink(missing_ok=True)
            delivery.write_private(str(new), secret.value, None)
            new.replace(folder / _file_of(secret))

    def held(self) -> list[tuple[JobName, int]]:
        """The attempts of which there are any."""
        if not self._is_ours():
            return []
        names = (entry.name.rpartition(".") for entry in os.scandir(self._link))
        return [(JobName(job), int(attempt)) for job, _, attempt in names]

    def drop(self, job: JobName, attempt: int) -> None:
        """Remove those of an attempt."""
        shutil.rmtree(self._link / f"{job}.{attempt}")

    def places(self, order: StartGang | GrowGang, use: SecretUse) -> tuple[Path, ...]:
        """Where it lies, if anything was sent."""
        return (self._link.resolve() / f"{order.job}.{order.attempt}" / _file_of(use),) if self._is_ours() else ()

    def lacking(self, _: QueueName, __: Iterable[SecretUse]) -> list[SecretUse]:
        """The control plane knows what queues have."""
        return []

    def values(self, _: QueueName, __: Iterable[SecretUse]) -> frozenset[bytes]:
        """The control plane covers them in what it shows: here they are gone by then."""
        return frozenset()

    def _made(self) -> Path:
        if not self._is_ours():
            self._link.unlink(missing_ok=True)
            in_memory = os.access(delivery.IN_MEMORY, os.W_OK | os.X_OK)
            folder = Path(delivery.IN_MEMORY if in_memory else self._link.parent, f"quorate-{os.urandom(16).hex()}")
            # On record before it is there, so that it is never left behind.
            self._link.symlink_to(folder)
            sync_folder(str(self._link.parent))
            folder.mkdir(mode=0o700)
        return self._link.resolve()

    def _is_ours(self) -> bool:
        """A process that could read the link may have made such a folder since it was gone."""
        try:
            found = self._link.stat()
        except FileNotFoundError:
            return False
        return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _file_of(secret: SentSecret | SecretUse) -> str:
    """Names and keys have no comma: their schemas see to that."""
    return f"{secret.name},{secret.key}"
