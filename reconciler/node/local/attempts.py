"""What is on disk of one attempt: the orders accepted for it, where supervisors look for them, and by which task lives now."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from reconciler.node.local.folders import order_name, task_folder_name
from reconciler.protocols.backend import GrowGang, StartGang, StopTasks, TellGang, TellReason
from reconciler.supervisor import taskfiles
from reconciler.supervisor.taskfiles import LEAVE, TELLS, write_durably
from solver.model.cluster import DeviceId, NodeName
from solver.model.document import Document, decode, encode
from solver.model.quantities import Instant, Memory
from solver.model.workload import JobName, JobSpec, TaskPlacement

T = TypeVar("T")

TaskKey = tuple[str, int]
"""Group and index."""

TELLS_KEPT: Final = 16
"""Supervisors look five times a second, so older ones have been told long ago."""


class Accepted(Document, frozen=True):
    """An order on disk, with what was settled when it came: where its tasks meet, what CUDA calls each device, its memory, and how
    much of that was in use."""

    order: StartGang | GrowGang
    at: Instant
    master_port: int
    device_index: dict[DeviceId, int | str]
    device_memory: dict[DeviceId, Memory] = {}  # noqa: RUF012  (msgspec copies an empty default for every instance)
    device_used: dict[DeviceId, Memory] = {}  # noqa: RUF012  (as above)

    @property
    def growth(self) -> int:
        """With which growth of the attempt these tasks came; 0: its start."""
        return self.order.growth if isinstance(self.order, GrowGang) else 0


class StopRequest(Document, frozen=True):
    """A stop order on disk. The supervisors read `grace_s`."""

    job: JobName
    attempt: int
    at: Instant
    grace_s: float


class LeaveRequest(Document, frozen=True):
    """The order to one task to leave, on disk in the folder of its newest life. Its supervisor reads `grace_s`."""

    job: JobName
    attempt: int
    group: str
    index: int
    growth: int
    at: Instant
    grace_s: float


@dataclass(frozen=True, slots=True)
class TaskLife:
    """One task from one order that named it: its last one, unless a later growth names it again."""

    accepted: Accepted
    task: TaskPlacement
    folder: Path


@dataclass(frozen=True, slots=True)
class Orders:
    """Everything that was ordered of one attempt but the stop. It changes only when an order is accepted.

    `gang` has all its tasks, `lives` those that are run here.
    """

    files: frozenset[str]
    accepted: dict[int, Accepted]
    leaves: dict[TaskKey, LeaveRequest]
    gang: dict[TaskKey, TaskLife]
    lives: dict[TaskKey, TaskLife]

    @classmethod
    def read(cls, attempt: Path, here: NodeName | None = None) -> Orders:
        """From the attempt's folder; nothing of an attempt that was stopped before it came. `here` None: every node is."""
        files = order_files(attempt)
        found = [read_document(attempt / name, Accepted) for name in sorted(files)]
        accepted = {known.growth: known for known in found if known}
        asked = [read_document(path, LeaveRequest) for path in attempt.glob(f"*/{taskfiles.LEAVE}")]
        leaves: dict[TaskKey, LeaveRequest] = {}
        for leave in sorted(filter(None, asked), key=lambda leave: leave.growth):
            leaves[leave.group, leave.index] = leave
        gang = {
            (task.group, task.index): TaskLife(known, task, life_folder(attempt, task, growth))
            for growth, known in sorted(accepted.items())
            for task in known.order.tasks
        }
        # A task that came to another node later has had a life here all the same, and that one is still told of.
        lives = {
            (task.group, task.index): TaskLife(known, task, life_folder(attempt, task, growth))
            for growth, known in sorted(accepted.items())
            for task in known.order.tasks
            if here in (None, task.node)
        }
        return cls(files, accepted, leaves, gang, lives)

    def leave_of(self, life: TaskLife) -> LeaveRequest | None:
        """What told a life to leave, if anything did: an order to an earlier life does not count."""
        leave = self.leaves.get((life.task.group, life.task.index))
        return leave if leave and leave.growth >= life.accepted.growth else None


def order_files(attempt: Path) -> frozenset[str]:
    """The names of the files of the orders that were accepted: another control plane may have added one."""
    names = (entry.name for entry in os.scandir(attempt))
    return frozenset(name for name in names if name.startswith("order.") and name.endswith(".json"))


def in_rank_order(tasks: Iterable[TaskPlacement], spec: JobSpec) -> list[TaskPlacement]:
    """Groups as the job lists them, then by index."""
    position = {group.name: place for place, group in enumerate(spec.task_groups)}
    return sorted(tasks, key=lambda task: (position[task.group], task.index))


def write_accepted(attempt: Path, accepted: Accepted) -> None:
    """Keep an order, before anything is done for it."""
    taskfiles.write_durably(str(attempt / order_name(accepted.growth)), encode(accepted).decode())


def life_folder(attempt: Path, task: TaskPlacement, growth: int) -> Path:
    """Where a task lies that came with a growth."""
    return attempt / task_folder_name(task.group, task.index, growth)


def make_life_folder(attempt: Path, task: TaskPlacement, growth: int) -> Path:
    """The same, made if need be: with one log for all lives of the task, so that it goes on where it stopped."""
    first, folder = life_folder(attempt, task, 0), life_folder(attempt, task, growth)
    for made in (first, folder):
        made.mkdir(mode=0o700, exist_ok=True)
    if folder != first and not (folder / taskfiles.LOG).exists():
        (first / taskfiles.LOG).touch(mode=0o600)
        (folder / taskfiles.LOG).hardlink_to(first / taskfiles.LOG)
    return folder


def read_document(path: Path, kind: type[T]) -> T | None:
    """A document on disk; None where there is none. Raises msgspec.DecodeError for a damaged one."""
    try:
        return decode(path.read_bytes(), kind)
    except FileNotFoundError:
        return None


def accept_leaves(attempt: Path, order: StopTasks, orders: Orders, at: Instant) -> None:
    """Keep the order for each task that was not told so before, and has no life younger than it."""
    grace_s = order.grace.seconds
    for task in order.tasks:
        told, life = orders.leaves.get((task.group, task.index)), orders.lives.get((task.group, task.index))
        if told is not None and told.growth >= order.growth:
            continue
        # Into the newest life, where its supervisor looks; a life that comes later finds it in `leaves`.
        came = life.accepted.growth if life else 0
        if came <= order.growth:
            folder = make_life_folder(attempt, task, came)
            request = LeaveRequest(order.job, order.attempt, task.group, task.index, order.growth, at, grace_s)
            write_durably(str(folder / LEAVE), encode(request).decode())


class TellOrder(Document, frozen=True):
    """One order as accepted: for the tasks that came into the attempt with a growth up to `growth`."""

    number: int
    reason: TellReason
    until: Instant
    signal: str
    growth: int
    at: Instant


class TellOrders(Document, frozen=True):
    """The newest orders, oldest first."""

    tells: tuple[TellOrder, ...]


def accept_tell(attempt: Path, order: TellGang, orders: Orders, at: Instant) -> None:
    """Keep an order for the supervisors, unless one with its number or a higher one came before, or no task is known yet."""
    path = attempt / Path(TELLS).name
    known = read_document(path, TellOrders)
    tells = known.tells if known else ()
    if not orders.accepted or (tells and tells[-1].number >= order.number):
        return
    tell = TellOrder(order.number, order.reason, order.until, order.signal, max(orders.accepted), at)
    write_durably(str(path), encode(TellOrders((*tells, tell)[-TELLS_KEPT:])).decode())
