"""What an agent does for a control plane, one message at a time, on its node's backend."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from reconciler.backends.baremetal.wire import (
    Answer,
    Declare,
    Do,
    Done,
    Failed,
    Forget,
    Lead,
    LogRead,
    Partition,
    ReadLog,
    Refused,
    ToBeDone,
    Welcome,
)
from reconciler.model.clock import Clock
from reconciler.model.gpu_use import SAMPLE_EVERY, NodeMinute
from reconciler.model.task_log import GapNotice
from reconciler.node.agent.folder import AgentFolder, Epochs
from reconciler.node.agent.hardware import Hardware, no_hardware
from reconciler.node.agent.secrets import ReceivedSecrets
from reconciler.node.local import LocalBackend
from reconciler.node.local.accounts import Submitters
from reconciler.node.local.gpus import DeclaredGpus, NodeGpus
from reconciler.node.local.machine import Equipment
from reconciler.node.local.terminals import LocalLine
from reconciler.node.local.terms import Terms
from reconciler.protocols.backend import BackendChanges, BackendUnreachableError, Cursor, StaleEpochError
from solver.model.cluster import DeviceId, Node, NodeName
from solver.model.quantities import Duration
from solver.model.workload import JobName

SECRETS_FOR: Final = Duration(60_000)
"""How long after a task has begun its secrets are kept for it: it reads them a moment later, or much later on a busy machine."""


def _no_minutes(number: int) -> tuple[tuple[NodeMinute, ...], int]:
    return (), number


class OrderHandler:
    """One node: its tasks, and what is on its disk. Threads may share it."""

    def __init__(
        self,
        node: NodeName,
        folder: AgentFolder,
        clock: Clock,
        gpus: Callable[[Path], NodeGpus] = DeclaredGpus,
        equipment: Equipment = Equipment(),  # noqa: B008  (it is frozen)
        hardware: Hardware | None = None,
        submitters: Submitters | None = None,
        minutes: Callable[[int], tuple[tuple[NodeMinute, ...], int]] = _no_minutes,
    ) -> None:
        """`gpus`: made of a folder to keep things in. `submitters`: as which accounts tasks run; None: as this user.

        `minutes`: of the GPUs' use, after a number, and the number to ask with next.

        Raises StateFolderError, and what `gpus` raises.
        """
        self.node = node
        self._folder = folder
        self._declared = folder.declared()
        self._secrets = ReceivedSecrets(folder.secrets)
        terms = Terms(self._secrets, submitters)
        self._backend = LocalBackend(folder.tasks, self._inventory, clock, gpus, terms, node, equipment)
        self._clock = clock
        self._hardware = hardware or Hardware(no_hardware)
        self._minutes = minutes
        self._asked_to_sample: Duration | None = None
        self.epochs = Epochs(folder.tasks)

    def changes(self, since: Cursor) -> BackendChanges:
        """What is new of the node, its hardware and its tasks. Raises StateFolderError."""
        facts = self._hardware.news(self._clock.now(), whole=not since)
        changes = msgspec.structs.replace(self._backend.changes(since), facts=facts)
        for job, attempt in self._secrets.held():
            if not self._backend.is_beginning(job, attempt, SECRETS_FOR):
                self._secrets.drop(job, attempt)
        return changes

    def note(self, said: Welcome | Declare) -> None:
        """Keep the leader's epoch, and what the node is."""
        if isinstance(said, Welcome):
            self.epochs.take(said.epoch)
            return
        self._asked_to_sample = said.sample_every
        if said.node != self._declared:
            self._folder.keep_declared(said.node)
            self._declared = said.node

    def sample_every(self) -> Duration:
        """Between two samples of the GPUs. While no control plane says it, as before any did."""
        return self._asked_to_sample or SAMPLE_EVERY

    def use_after(self, number: int) -> tuple[tuple[NodeMinute, ...], int]:
        """Minutes of the GPUs' use after a number, and the number to ask with next; none for one that does not ask for any."""
        return self._minutes(number) if self._asked_to_sample else ((), number)

    def devices_at_work(self) -> frozenset[DeviceId]:
        """GPUs that are busy, if they are simulated. Raises StateFolderError."""
        return self._backend.devices_at_work()

    def do(self, order: ToBeDone) -> Answer:
        """Do as told, unless a newer leader is known."""
        try:
            self._do(order)
        except StaleEpochError:
            return Refused(order.id, self.epochs.seen())
        except (BackendUnreachableError, OSError) as error:
            return Failed(order.id, str(error))
        return Done(order.id)

    def read_log(self, asked: ReadLog) -> Answer:
        """A piece of a task's output."""
        try:
            piece = asked.job, asked.attempt, asked.group, asked.index, asked.offset, asked.limit
            found = self._backend.read_log(*piece)
            return LogRead(asked.id, bytes(found), found.end if isinstance(found, GapNotice) else None)
        except KeyError:
            return LogRead(asked.id, None)
        except BackendUnreachableError as error:
            return Failed(asked.id, str(error))

    def open_terminal(self, job: JobName, attempt: int, group: str, index: int) -> LocalLine:
        """Attach. Raises NoTerminalError."""
        return self._backend.open_terminal(job, attempt, group, index)

    def _do(self, order: ToBeDone) -> None:
        match order:
            case Lead(_, epoch):
                if not self.epochs.take(epoch):
                    raise StaleEpochError
            case Do(_, epoch, asked, secrets):
                # Before tasks begin. Where the order is refused none begins, and the next look removes them.
                if secrets:
                    self._secrets.keep(asked.job, asked.attempt, secrets)
                self._backend.submit(asked, epoch)
            case Partition(_, epoch, partition):
                self._backend.partition(partition, epoch)
            case Forget(_, epoch, job, attempt):
                self._backend.forget(job, attempt, epoch)

    def _inventory(self) -> tuple[Node, ...]:
        return (self._declared,) if self._declared is not None and self._declared.name == self.node else ()
