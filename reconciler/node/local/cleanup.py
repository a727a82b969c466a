"""Whether a GPU is as it was before a task had it: looked at once the task has ended, and before others may have it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import quote

import msgspec

from reconciler.node.local.attempts import TaskLife, read_document
from reconciler.node.local.tasks import LocalTaskStatus
from reconciler.protocols.backend import ENDED
from reconciler.supervisor.memory import written
from reconciler.supervisor.taskfiles import write_durably
from solver.model.cluster import DeviceId, Node
from solver.model.document import Document, encode
from solver.model.quantities import Duration, Instant, Memory
from solver.model.workload import TaskPlacement

CLEAN_WITHIN: Final = Duration(60_000)
"""A driver that tears down a large context takes some seconds; what is there after a minute stays."""

MEMORY_SLACK: Final = Memory(64 * 2**20)
"""By how much an idle GPU may have more in use than before: drivers keep some, and round it."""

VERIFIED: Final = "gpus"
"""The file of a task's folder that says how its GPUs were when it had ended. Not looked at again: others may have them then."""


class GpuUse(Protocol):
    """What a driver says of a GPU, or of a MIG instance. Raises GpuUnreadableError."""

    def processes(self, device: DeviceId) -> tuple[int, ...]:
        """The processes that have a context on it."""

    def memory_used(self, device: DeviceId) -> Memory:
        """How much of its memory is in use, by whomever."""


class GpuUnreadableError(Exception):
    """The driver does not say. The message says why."""


class Unclean(Document, frozen=True):
    """A GPU that no task may have, why, since when, and how much of its memory was in use before."""

    device: DeviceId
    why: str
    at: Instant
    before: Memory | None = None


class Verified(Document, frozen=True):
    """How the GPUs of a task that has ended were: `unclean` says of which ones, and why; none of them: ""."""

    at: Instant
    unclean: str = ""


@dataclass(frozen=True, slots=True)
class GpuCleanup:
    """Verifies by what `use` says; None: the GPUs are declared, and there is nothing to verify. `folder`: of those not clean."""

    folder: Path
    use: GpuUse | None = None
    within: Duration = CLEAN_WITHIN

    def before(self, devices: Iterable[DeviceId]) -> dict[DeviceId, Memory]:
        """How much is in use of GPUs that a task is to have; one with a driver that does not say is left out."""
        found: dict[DeviceId, Memory] = {}
        for device in devices if self.use else ():
            try:
                found[device] = self.use.memory_used(device) if self.use else Memory(0)
            except GpuUnreadableError:
                continue  # What its driver says when the task has ended decides.
        return found

    def verify(
        self, task: Path, devices: Iterable[DeviceId], before: dict[DeviceId, Memory], ended_at: Instant, now: Instant
    ) -> str | Verified:
        """How the GPUs of a task that has ended are, for good; text: what is not clean yet, and is waited for. Raises OSError.

        What is not clean in time is on record before the task counts as ended, so no task gets it.
        """
        known = read_document(task / VERIFIED, Verified)
        if known is not None:
            return known
        found = {device: why for device in devices if (why := self._unclean(device, before.get(device)))}
        told = "; ".join(f"GPU {device}: {why}" for device, why in sorted(found.items()))
        if found and 0 <= now - ended_at < self.within:
            return told
        for device, why in sorted(found.items()):
            self._keep(Unclean(device, why, now, before.get(device)))
        verified = Verified(now, told)
        if self.use is not None:
            write_durably(str(task / VERIFIED), encode(verified).decode())
        return verified

    def settled(self, life: TaskLife, stands: LocalTaskStatus, now: Instant) -> LocalTaskStatus:
        """A task that has ended still runs, as far as others care, until its GPUs are clean or known not to be. Raises OSError."""
        devices = whole_gpus(life.task)
        if stands.state not in ENDED or stands.at is None or not devices:
            return stands
        found = self.verify(life.folder, devices, life.accepted.device_used, Instant(stands.at), now)
        if isinstance(found, Verified):
            return replace(stands, detail="; ".join(filter(None, (stands.detail, found.unclean))))
        return replace(stands, state="running", exit_code=None, detail=f"it has ended, and is waited for: {found}")

    def quarantined(self) -> dict[DeviceId, Unclean]:
        """The GPUs that no task may have; one that has become clean since is let go. Raises OSError."""
        held: dict[DeviceId, Unclean] = {}
        for path in sorted(self.folder.glob("*.json")):
            known = read_document(path, Unclean)
            if known is None or (self.use is not None and not self._unclean(known.device, known.before)):
                path.unlink(missing_ok=True)
            else:
                held[known.device] = known
        return held

    def _unclean(self, device: DeviceId, before: Memory | None) -> str:
        if self.use is None:
            return ""
        try:
            return why_unclean(self.use.processes(device), self.use.memory_used(device), before)
        except GpuUnreadableError as error:
            return str(error)

    def _keep(self, unclean: Unclean) -> None:
        self.folder.mkdir(mode=0o700, exist_ok=True)
        name = quote(unclean.device, safe="").replace(".", "%2E")
        write_durably(str(self.folder / f"{name}.json"), encode(unclean).decode())


def why_unclean(processes: tuple[int, ...], used: Memory, before: Memory | None) -> str:
    """What is left on a GPU; "": nothing. Memory that belongs to no process is told too: a context that hangs has such."""
    if processes:
        return f"processes {', '.join(map(str, sorted(processes)))} are still on it"
    if before is not None and used > before + MEMORY_SLACK:
        return f"{written(used)} of its memory are in use by no process, and {written(before)} were before"
    return ""


def whole_gpus(task: TaskPlacement) -> tuple[DeviceId, ...]:
    """Those that a task has for itself. On one that it shares others' processes can't be told from its own, once it has ended;
    an instance of MIG is taken apart, or used again, with what the driver knows of it alone."""
    return task.devices if task.share is None and task.mig is None else ()


def unhealthy(node: Node, unclean: Collection[DeviceId]) -> Node:
    """The node, without its GPUs that are not clean."""
    gpus = tuple(msgspec.structs.replace(gpu, healthy=False) if gpu.id in unclean else gpu for gpu in node.gpus)
    return msgspec.structs.replace(node, gpus=gpus)
