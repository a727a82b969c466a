"""How one task stands, read from its folder and its supervisor's lock: nothing else is remembered."""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from reconciler.node.local.attempts import TaskLife
from reconciler.node.local.progress import said_progress
from reconciler.node.local.strays import kill_strays
from reconciler.protocols.backend import Activity, MemoryUse, Progress, TaskState, TaskStatus
from reconciler.supervisor import shim, taskfiles
from reconciler.supervisor.delivery import take_away
from reconciler.supervisor.memory import written
from reconciler.supervisor.remains import end_without_supervisor
from solver.model.quantities import Instant, Memory

T = TypeVar("T")


class Started(msgspec.Struct, frozen=True, rename="camel"):
    """What the shim wrote before it let the command go."""

    pid: int
    start_ticks: int | None
    at: int


class Measured(msgspec.Struct, frozen=True):
    """What the shim saw of the task's memory, in bytes."""

    peak: int
    limit: int
    exceeded: bool


class TaskExit(msgspec.Struct, frozen=True, rename="camel"):
    """How a task ended: written by its shim, or by the backend for a task that has none (`lost`)."""

    at: int
    code: int | None = None
    stopped: bool = False
    lost: str = ""
    memory: Measured | None = None


class TaskActivity(msgspec.Struct, frozen=True, rename="camel"):
    """What the shim saw the task do, and for how long by `seen_at` it had not. None: a shim of an older release does not tell."""

    idle_ms: int
    seen_at: int
    typed_idle_ms: int | None = None
    log_idle_ms: int | None = None

    def ago(self, idle_ms: int | None) -> Instant | None:
        """When that was."""
        return None if idle_ms is None else Instant(self.seen_at - idle_ms)


@dataclass(frozen=True, slots=True)
class LocalTaskStatus:
    """A task's state, since when (milliseconds; None: it was not noted), the words that go with it, and what it does."""

    state: TaskState
    at: int | None = None
    exit_code: int | None = None
    detail: str = ""
    activity: Activity | None = None
    progress: Progress | None = None
    memory: MemoryUse | None = None
    told: int = 0


def local_status(folder: Path, attempt_stopped_at: int | None, now: int) -> LocalTaskStatus:
    """Derive how a task stands; settles as `lost` one without its supervisor, once nothing of it runs any more."""
    ended = _read(folder / taskfiles.EXIT, TaskExit)
    if ended is None and _lock_is_held(folder / taskfiles.LOCK):
        started = _read(folder / taskfiles.STARTED, Started)
        return _running(folder, started.at) if started else LocalTaskStatus("starting")
    # The supervisor may have ended properly between the two looks.
    ended = ended or _read(folder / taskfiles.EXIT, TaskExit)
    if ended is not None:
        return _ended(folder, ended)
    started = _read(folder / taskfiles.STARTED, Started)
    if started is not None:
        return _without_supervisor(folder, started, now)
    if attempt_stopped_at is not None:
        # A shim looks for the stop order after taking the lock: the lock is free, so none will get past it.
        return LocalTaskStatus("stopped", attempt_stopped_at, detail="it was stopped before it started")
    return LocalTaskStatus("starting")


def record_lost(folder: Path, reason: str, now: int) -> TaskExit:
    """Settle a task's end where no supervisor can."""
    ended = TaskExit(at=int(now), lost=reason)
    taskfiles.write_durably(str(folder / taskfiles.EXIT), msgspec.json.encode(ended).decode())
    return ended


def was_started(folder: Path) -> bool:
    """A supervisor let the command go, or the task has ended without."""
    return (folder / taskfiles.STARTED).exists() or (folder / taskfiles.EXIT).exists()


def _activity(folder: Path) -> Activity | None:
    watched = _read(folder / taskfiles.ACTIVITY, TaskActivity)
    if watched is None:
        return None
    typed_at, logged_at = watched.ago(watched.typed_idle_ms), watched.ago(watched.log_idle_ms)
    return Activity(Instant(watched.seen_at - watched.idle_ms), Instant(watched.seen_at), typed_at, logged_at)


def _running(folder: Path, since: int) -> LocalTaskStatus:
    progress, complaint = said_progress(folder / taskfiles.PROGRESS)
    return LocalTaskStatus(
        "running",
        since,
        detail=complaint,
        activity=_activity(folder),
        progress=progress,
        memory=_memory(_read(folder / taskfiles.MEMORY, Measured)),
        told=_read(folder / taskfiles.TOLD, int) or 0,
    )


def _ended(folder: Path, ended: TaskExit) -> LocalTaskStatus:
    state, detail = _end_of(ended)
    measured = ended.memory or _read(folder / taskfiles.MEMORY, Measured)
    return LocalTaskStatus(
        state,
        ended.at,
        None if ended.lost else ended.code,
        detail,
        progress=said_progress(folder / taskfiles.PROGRESS)[0],
        memory=_memory(measured),
        told=_read(folder / taskfiles.TOLD, int) or 0,
    )


def _end_of(ended: TaskExit) -> tuple[TaskState, str]:
    if ended.lost:
        return "lost", ended.lost
    if ended.stopped:
        return "stopped", ""
    if ended.memory is not None and ended.memory.exceeded:
        return (
            "failed",
            f"used {written(ended.memory.peak)} of {written(ended.memory.limit)} memory, and was ended for it",
        )
    return ("succeeded", "") if ended.code == 0 else ("failed", _words(ended.code or 0))


def _memory(measured: Measured | None) -> MemoryUse | None:
    return MemoryUse(Memory(measured.peak), Memory(measured.limit), measured.exceeded) if measured else None


def _words(code: int) -> str:
    if code == shim.COMMAND_NOT_FOUND:
        return "exit code 127: the command was not found"
    if code > shim.DEATH_BY_SIGNAL:
        return f"exit code {code}: as after signal {code - shim.DEATH_BY_SIGNAL}"
    return f"exit code {code}"


def _without_supervisor(folder: Path, started: Started, now: int) -> LocalTaskStatus:
    if not kill_strays(str(folder), started.pid, started.start_ticks or -1):
        return LocalTaskStatus("running", started.at, detail="its supervisor vanished; ending what is left of it")
    left = end_without_supervisor(msgspec.json.decode((folder / taskfiles.TASK).read_bytes()))
    if left:
        return LocalTaskStatus("running", started.at, detail=f"its supervisor vanished; {left}")
    take_away(str(folder))
    return _ended(folder, record_lost(folder, "its supervisor vanished, so how it ended is unknown", now))


def _lock_is_held(path: Path) -> bool:
    """Whether a supervisor lives. Looking takes a shared lock for a moment; the shim tries again when it meets one."""
    try:
        lock = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(lock)


def _read(path: Path, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None


def status_of(life: TaskLife, stands: LocalTaskStatus) -> TaskStatus:
    """The status of a task that stands so; one without a noted time, since its order came."""
    return TaskStatus(
        job=life.accepted.order.job,
        attempt=life.accepted.order.attempt,
        group=life.task.group,
        index=life.task.index,
        node=life.task.node,
        state=stands.state,
        at=life.accepted.at if stands.at is None else Instant(stands.at),
        exit_code=stands.exit_code,
        detail=stands.detail,
        growth=life.accepted.growth,
        activity=stands.activity,
        progress=stands.progress,
        memory=stands.memory,
        told=stands.told,
    )
