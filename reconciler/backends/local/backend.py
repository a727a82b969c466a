"""The local backend: keeps tasks as folders and supervised processes, and reports how they stand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Final, TypeVar

import msgspec

from reconciler.backend import (
    ENDED,
    AttemptStopped,
    BackendUnreachableError,
    Changes,
    Cursor,
    Epoch,
    Order,
    StaleEpochError,
    StartGang,
    StopGang,
    TaskStatus,
)
from reconciler.backends.local import shim
from reconciler.backends.local.folders import ORDER, StateFolders, stop_file, task_folder_name
from reconciler.backends.local.journal import Journal
from reconciler.backends.local.spawn import Supervisors, free_port
from reconciler.backends.local.tasks import record_lost, standing, was_started
from reconciler.clock import Clock
from solver.world.cluster import DeviceId, Node
from solver.world.document import Document, decode, encode
from solver.world.quantities import Instant, Memory
from solver.world.workload import JobName, TaskPlacement

T = TypeVar("T")

STOPPED: Final = "stop"
"""The part of an attempt, beside its tasks' folders, whose news is AttemptStopped."""


class StateFolderError(BackendUnreachableError):
    """The state folder can't be read or written (full, read-only, gone): a person must act. Then send it again."""


class Accepted(Document, frozen=True):
    """A start order on disk, with what was settled when it came: where its tasks meet, and each device's index and memory."""

    order: StartGang
    at: Instant
    master_port: int
    device_index: dict[DeviceId, int]
    device_memory: dict[DeviceId, Memory] = {}  # noqa: RUF012  (msgspec copies an empty default for every instance)


class StopRequest(Document, frozen=True):
    """A stop order on disk. The supervisors read `grace_s`."""

    job: JobName
    attempt: int
    at: Instant
    grace_s: float


class LocalBackend:
    """Runs tasks on this machine; implements Backend and Logs. Threads may share it.

    All it knows lies in `state`: a new object on the same folder finds every task again. GPUs and nodes are the
    declared ones; every node is reported ready, since all of them are this machine.
    """

    def __init__(self, state: Path, inventory: Callable[[], tuple[Node, ...]], clock: Clock) -> None:
        self._inventory = inventory
        self._clock = clock
        self._supervisors = Supervisors()
        self._orders: dict[Path, Accepted] = {}
        self._one_at_a_time = Lock()
        with _disk_errors_explained(state):
            self._folders = StateFolders(state.resolve())
            self._journal = Journal(opening=self._folders.count_opening())

    def changes(self, since: Cursor) -> Changes:
        """What changed after `since`; for an earlier object's cursor, everything. Raises StateFolderError."""
        with self._one_at_a_time, _disk_errors_explained(self._folders.root):
            self._supervisors.reap()
            self._journal.note_nodes(self._inventory())
            live = self._folders.live()
            for attempt in sorted(live):
                self._observe(attempt)
            self._journal.keep_only(live)
            self._orders = {attempt: order for attempt, order in self._orders.items() if attempt in live}
            return self._journal.after(since)

    def submit(self, order: Order, epoch: Epoch) -> None:
        """Ask for a fact; harmless to repeat. Raises StaleEpochError, or StateFolderError if the disk refuses."""
        with self._acting(epoch):
            if self._folders.is_forgotten(order.job, order.attempt):
                return
            if isinstance(order, StartGang):
                self._start(order)
            else:
                self._stop(order)

    def forget(self, job: JobName, attempt: int, epoch: Epoch) -> None:
        """Stop reporting an attempt: its logs stay, it never starts again. Raises StaleEpochError, StateFolderError."""
        with self._acting(epoch):
            if self._folders.attempt(job, attempt).exists():
                self._folders.forget(job, attempt)

    def read_log(self, job: JobName, attempt: int, group: str, index: int, offset: int, limit: int) -> bytes:
        """Up to `limit` bytes of a task's output and errors from `offset`. Raises KeyError for an unknown task."""
        with _disk_errors_explained(self._folders.root):
            for folder in self._folders.task_places(job, attempt, group, index):
                try:
                    with (folder / shim.LOG).open("rb") as log:
                        log.seek(offset)
                        return log.read(limit)
                except FileNotFoundError:
                    if folder.is_dir():
                        return b""
        raise KeyError(f"no task {group}/{index} in attempt {attempt} of job {job}")

    def _start(self, order: StartGang) -> None:
        attempt = self._folders.make_attempt(order.job, order.attempt)
        if stop_file(attempt).exists():
            return
        accepted = self._accepted(attempt) or self._accept(attempt, order)
        wanted = {device for task in accepted.order.tasks for device in task.devices}
        missing = sorted(wanted - accepted.device_index.keys())
        if missing:
            self._refuse(attempt, accepted, f"this machine has no device {', '.join(missing)}")
        else:
            self._supervisors.start_gang(
                attempt, accepted.order, accepted.device_index, accepted.master_port, accepted.device_memory
            )

    def _accept(self, attempt: Path, order: StartGang) -> Accepted:
        port = free_port({known.master_port for known in self._orders.values()})
        wanted = {device for task in order.tasks for device in task.devices}
        gpus = [gpu for node in self._inventory() for gpu in node.gpus if gpu.id in wanted]
        index, memory = {gpu.id: gpu.index for gpu in gpus}, {gpu.id: gpu.memory for gpu in gpus}
        accepted = Accepted(order, self._clock.now(), port, index, memory)
        shim.write_durably(str(attempt / ORDER), encode(accepted).decode())
        return accepted

    def _refuse(self, attempt: Path, accepted: Accepted, reason: str) -> None:
        for task in accepted.order.tasks:
            folder = attempt / task_folder_name(task.group, task.index)
            if not was_started(folder):
                folder.mkdir(mode=0o700, exist_ok=True)
                record_lost(folder, reason, accepted.at)

    def _stop(self, order: StopGang) -> None:
        attempt = self._folders.make_attempt(order.job, order.attempt)
        if not stop_file(attempt).exists():
            request = StopRequest(order.job, order.attempt, self._clock.now(), order.grace.seconds)
            shim.write_durably(str(stop_file(attempt)), encode(request).decode())

    def _observe(self, attempt: Path) -> None:
        # The stop first: an attempt that has one accepts no order any more, so the order read next is the last word.
        stop = _read(stop_file(attempt), StopRequest)
        accepted = self._accepted(attempt)
        statuses = [self._status(attempt, accepted, task, stop) for task in accepted.order.tasks] if accepted else []
        if stop and all(status.state in ENDED for status in statuses):
            at = max([stop.at, *(status.at for status in statuses)])
            self._journal.note(attempt, STOPPED, AttemptStopped(stop.job, stop.attempt, at))

    def _status(self, attempt: Path, accepted: Accepted, task: TaskPlacement, stop: StopRequest | None) -> TaskStatus:
        part = task_folder_name(task.group, task.index)
        ended = self._journal.ended(attempt, part)
        if ended is not None:
            return ended
        stands = standing(attempt / part, stop.at if stop else None, self._clock.now())
        status = TaskStatus(
            job=accepted.order.job,
            attempt=accepted.order.attempt,
            group=task.group,
            index=task.index,
            node=task.node,
            state=stands.state,
            at=accepted.at if stands.at is None else Instant(stands.at),
            exit_code=stands.exit_code,
            detail=stands.detail,
        )
        self._journal.note(attempt, part, status)
        return status

    def _accepted(self, attempt: Path) -> Accepted | None:
        """The order of an attempt, read once: it never changes."""
        if attempt not in self._orders:
            accepted = _read(attempt / ORDER, Accepted)
            if accepted is None:
                return None
            self._orders[attempt] = accepted
        return self._orders[attempt]

    @contextmanager
    def _acting(self, epoch: Epoch) -> Iterator[None]:
        with self._one_at_a_time, _disk_errors_explained(self._folders.root), self._folders.exclusive():
            if not self._folders.raise_epoch(epoch):
                raise StaleEpochError(f"epoch {epoch} is not the newest this backend has seen: somebody else leads now")
            yield


def _read(path: Path, kind: type[T]) -> T | None:
    try:
        return decode(path.read_bytes(), kind)
    except FileNotFoundError:
        return None


@contextmanager
def _disk_errors_explained(state: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StateFolderError(
            f"{state}: {error}. Make it a folder this user can write, with free space; then go on"
        ) from error
    except msgspec.DecodeError as error:
        raise StateFolderError(
            f"{state}: a file in it is damaged: {error}. Restore the folder, or move it away"
        ) from error
