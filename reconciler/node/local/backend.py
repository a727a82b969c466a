"""The local backend: keeps tasks as folders and supervised processes, and reports how they stand."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Final

from reconciler.model.clock import Clock
from reconciler.model.masking import read_log_masked
from reconciler.node.local.attempts import (
    Accepted,
    LeaveRequest,
    Orders,
    StopRequest,
    TaskLife,
    accept_leaves,
    accept_tell,
    make_life_folder,
    order_files,
    read_document,
    write_accepted,
)
from reconciler.node.local.cleanup import GpuCleanup, unhealthy, whole_gpus
from reconciler.node.local.disk import disk_errors_explained
from reconciler.node.local.environment import SIMULATED_GPUS
from reconciler.node.local.folders import StateFolders, stop_file, task_folder_name
from reconciler.node.local.gangfile import write_gang
from reconciler.node.local.gpus import DeclaredGpus, NodeGpus
from reconciler.node.local.journal import LocalJournal
from reconciler.node.local.machine import Equipment
from reconciler.node.local.mps import MpsWatch, clients_of, shares_of
from reconciler.node.local.supervisors import Supervisors, free_port
from reconciler.node.local.tasks import local_status, record_lost, status_of, was_started
from reconciler.node.local.terminals import LocalLine
from reconciler.node.local.terms import Terms
from reconciler.protocols.backend import (
    ENDED,
    AttemptKey,
    AttemptStopped,
    BackendChanges,
    Cursor,
    Epoch,
    GrowGang,
    Order,
    PartitionGpu,
    StaleEpochError,
    StartGang,
    StopGang,
    StopTasks,
    TaskLeft,
    TaskStatus,
    TellGang,
    forget_each,
)
from reconciler.supervisor import taskfiles
from solver.model.cluster import DeviceId, Node, NodeName
from solver.model.document import encode
from solver.model.quantities import Duration
from solver.model.workload import JobName

STOPPED: Final = "stop"
LEFT: Final = "left"
"""The parts of an attempt, beside its tasks' folders, with AttemptStopped, or TaskLeft, as their news."""


class LocalBackend:
    """Runs tasks on this machine; implements Backend, Logs and Terminals. Threads may share it.

    All it knows lies in `state`: a new object on the same folder finds every task again. Nodes are the declared ones,
    and ready, since all are this machine. Where `here` alone is, its tasks alone run. `gpus`: made of a folder to keep things in.
    """

    def __init__(
        self,
        state: Path,
        inventory: Callable[[], tuple[Node, ...]],
        clock: Clock,
        gpus: Callable[[Path], NodeGpus] = DeclaredGpus,
        terms: Terms = Terms(),  # noqa: B008  (it is frozen)
        here: NodeName | None = None,
        equipment: Equipment = Equipment(),  # noqa: B008  (as above)
    ) -> None:
        self._here = here
        self._declared = inventory
        self._clock = clock
        self._terms = terms
        self._supervisors = Supervisors(terms, equipment.runtimes, equipment.mps)
        self._mps = MpsWatch(equipment.mps)
        self._orders: dict[Path, Orders] = {}
        self._one_at_a_time = Lock()
        with disk_errors_explained(state):
            self._folders = StateFolders(state.resolve())
            self._gpus = gpus(self._folders.gpus)
            self._cleanup = GpuCleanup(self._folders.quarantine, equipment.gpu_use)
            self._journal = LocalJournal(opening=self._folders.count_opening())

    def changes(self, since: Cursor) -> BackendChanges:
        """What changed after `since`; for an earlier object's cursor, everything. Raises StateFolderError."""
        with self._one_at_a_time, disk_errors_explained(self._folders.root):
            self._supervisors.reap()
            live = self._folders.live()
            for attempt in sorted(live):
                self._observe(attempt)
            self._mps.look(self._clients(), self._clock.now())
            # After the tasks: a GPU that one has left unclean is reported with its end.
            unclean = self._cleanup.quarantined()
            self._journal.note_nodes(tuple(unhealthy(node, unclean) for node in self._inventory()))
            self._journal.note_gpus(self._gpus.reports())
            self._journal.keep_only(live)
            self._orders = {attempt: orders for attempt, orders in self._orders.items() if attempt in live}
            return self._journal.after(since)

    def submit(self, order: Order, epoch: Epoch) -> None:
        """Ask for a fact; harmless to repeat. Raises StaleEpochError, or StateFolderError if the disk refuses."""
        with self._acting(epoch):
            if self._folders.is_forgotten(order.job, order.attempt):
                return
            match order:
                case StartGang() | GrowGang():
                    self._start(order)
                case StopGang():
                    self._stop(order)
                case StopTasks():
                    self._stop_tasks(order)
                case TellGang():
                    self._tell(order)

    def partition(self, order: PartitionGpu, epoch: Epoch) -> None:
        """Partition a declared GPU, or refuse to. Raises StaleEpochError, or StateFolderError if the disk refuses."""
        with self._acting(epoch):
            self._gpus.partition(
                order,
                self._declared(),
                {device for life in self._alive() for device in life.task.devices},
                self._clock.now(),
            )

    def forget(self, job: JobName, attempt: int, epoch: Epoch) -> None:
        """Stop reporting an attempt: its logs stay for a while, it never starts again. Raises StaleEpochError, StateFolderError."""
        with self._acting(epoch):
            if self._folders.attempt(job, attempt).exists():
                self._folders.forget(job, attempt, self._clock.now())

    def forget_all(self, over: Collection[AttemptKey], epoch: Epoch) -> dict[AttemptKey, str]:
        """One after the other."""
        return forget_each(self.forget, over, epoch)

    def read_log(self, job: JobName, attempt: int, group: str, index: int, offset: int, limit: int) -> bytes:
        """Up to `limit` bytes of a task's output and errors from `offset`, with the values of its secrets covered as far as may be.

        Raises KeyError for an unknown task.
        """
        with disk_errors_explained(self._folders.root):
            for folder in self._folders.task_places(job, attempt, group, index):
                try:
                    return read_log_masked(folder / taskfiles.LOG, offset, limit, self._terms.values(folder.parent))
                except FileNotFoundError:
                    if folder.is_dir():
                        return b""
        raise KeyError(f"no task {group}/{index} in attempt {attempt} of job {job}")

    def devices_at_work(self) -> frozenset[DeviceId]:
        """Those of tasks that run or will, unless their environment leaves simulated GPUs idle. Raises StateFolderError."""
        with self._one_at_a_time, disk_errors_explained(self._folders.root):
            return frozenset(
                device
                for life in self._alive()
                if life.accepted.order.spec.env.get(SIMULATED_GPUS) != "idle"
                for device in life.task.devices
            )

    def is_beginning(self, job: JobName, attempt: int, span: Duration) -> bool:
        """Whether a task of an attempt is yet to begin here, or has begun within `span`. Raises StateFolderError."""
        with self._one_at_a_time, disk_errors_explained(self._folders.root):
            folder, since = self._folders.attempt(job, attempt), self._clock.now() - span
            if not folder.exists():
                return False
            stop, orders = read_document(stop_file(folder), StopRequest), self._orders_of(folder)
            stand = [self._status(folder, orders, life, stop) for life in orders.lives.values()]
            return any(one.state == "starting" or (one.state == "running" and one.at > since) for one in stand)

    def open_terminal(self, job: JobName, attempt: int, group: str, index: int) -> LocalLine:
        """Attach to the terminal of a task. Raises NoTerminalError for one that has none, or does not run."""
        folder, _ = self._folders.task_places(job, attempt, group, index)
        return LocalLine(folder, f"task {group}/{index} of attempt {attempt} of job {job}")

    def _start(self, order: StartGang | GrowGang) -> None:
        attempt = self._folders.make_attempt(order.job, order.attempt)
        if stop_file(attempt).exists():
            return
        accepted = self._accept(attempt, order)
        orders = self._orders_of(attempt)
        write_gang(attempt, orders)
        lives = [
            life
            for life in orders.lives.values()
            if life.accepted.growth == accepted.growth and not orders.leave_of(life)
        ]
        wanted = {device for life in lives for device in life.task.devices}
        missing = sorted(wanted - accepted.device_index.keys())
        if missing:
            _refuse(attempt, lives, self._gpus.lacking(missing))
        else:
            self._supervisors.start_tasks(attempt, accepted, {life.task for life in lives}, shares_of(self._clients()))

    def _accept(self, attempt: Path, order: StartGang | GrowGang) -> Accepted:
        """What an order comes to; the first of its kind and number stays."""
        known = self._orders_of(attempt).accepted
        number = order.growth if isinstance(order, GrowGang) else 0
        if number in known:
            return known[number]
        wanted = {device for task in order.tasks for device in task.devices}
        gpus = [gpu for node in self._inventory() for gpu in node.gpus]
        index, memory = self._gpus.called(order.tasks, gpus), {gpu.id: gpu.memory for gpu in gpus if gpu.id in wanted}
        port = order.meeting.port if order.meeting else 0
        port = known[0].master_port if 0 in known else port or free_port(self._ports())
        used = self._cleanup.before(device for task in order.tasks for device in whole_gpus(task) if device in index)
        accepted = Accepted(order, self._clock.now(), port, index, memory, used)
        write_accepted(attempt, accepted)
        self._orders.pop(attempt, None)
        return accepted

    def _inventory(self) -> tuple[Node, ...]:
        return self._gpus.as_partitioned(self._declared())

    def _alive(self) -> Iterator[TaskLife]:
        """The tasks that run or will."""
        for attempt in self._folders.live():
            stop, orders = read_document(stop_file(attempt), StopRequest), self._orders_of(attempt)
            for life in orders.lives.values():
                if self._status(attempt, orders, life, stop).state not in ENDED:
                    yield life

    def _clients(self) -> dict[DeviceId, list[TaskLife]]:
        return clients_of(self._alive()) if self._mps.mps else {}

    def _ports(self) -> set[int]:
        return {accepted.master_port for orders in self._orders.values() for accepted in orders.accepted.values()}

    def _stop(self, order: StopGang) -> None:
        attempt = self._folders.make_attempt(order.job, order.attempt)
        if not stop_file(attempt).exists():
            request = StopRequest(order.job, order.attempt, self._clock.now(), order.grace.seconds)
            taskfiles.write_durably(str(stop_file(attempt)), encode(request).decode())

    def _stop_tasks(self, order: StopTasks) -> None:
        attempt = self._folders.make_attempt(order.job, order.attempt)
        accept_leaves(attempt, order, self._orders_of(attempt), self._clock.now())
        self._orders.pop(attempt, None)
        write_gang(attempt, self._orders_of(attempt))

    def _tell(self, order: TellGang) -> None:
        attempt = self._folders.attempt(order.job, order.attempt)
        if attempt.exists():
            accept_tell(attempt, order, self._orders_of(attempt), self._clock.now())

    def _observe(self, attempt: Path) -> None:
        # The stop first: an attempt that has one accepts no order any more, so the orders read next are the last word.
        stop = read_document(stop_file(attempt), StopRequest)
        orders = self._orders_of(attempt)
        statuses = {key: self._status(attempt, orders, life, stop) for key, life in orders.lives.items()}
        for key, leave in orders.leaves.items():
            self._note_left(attempt, leave, statuses.get(key))
        if stop and all(status.state in ENDED for status in statuses.values()):
            at = max([stop.at, *(status.at for status in statuses.values())])
            self._journal.note(attempt, STOPPED, AttemptStopped(stop.job, stop.attempt, at))

    def _note_left(self, attempt: Path, leave: LeaveRequest, status: TaskStatus | None) -> None:
        """A task that was told to leave has, unless what came before runs still."""
        if status is not None and status.growth <= leave.growth and status.state not in ENDED:
            return
        at = max(leave.at, status.at) if status is not None and status.growth <= leave.growth else leave.at
        left = TaskLeft(leave.job, leave.attempt, leave.group, leave.index, leave.growth, at)
        self._journal.note(attempt, f"{LEFT}/{task_folder_name(leave.group, leave.index)}", left)

    def _status(self, attempt: Path, orders: Orders, life: TaskLife, stop: StopRequest | None) -> TaskStatus:
        part = task_folder_name(life.task.group, life.task.index)
        ended = self._journal.ended(attempt, part)
        if ended is not None and ended.growth == life.accepted.growth:
            return ended
        told = [request.at for request in (orders.leave_of(life), stop) if request]
        stands = local_status(life.folder, min(told, default=None), self._clock.now())
        status = status_of(life, self._cleanup.settled(life, stands, self._clock.now()))
        self._journal.note_task(attempt, part, status, self._clock.now())
        return status

    def _orders_of(self, attempt: Path) -> Orders:
        """What was ordered of an attempt, read once until something is added."""
        known = self._orders.get(attempt)
        if known is None or known.files != order_files(attempt):
            known = self._orders[attempt] = Orders.read(attempt, self._here)
        return known

    @contextmanager
    def _acting(self, epoch: Epoch) -> Iterator[None]:
        with self._one_at_a_time, disk_errors_explained(self._folders.root), self._folders.exclusive():
            if not self._folders.raise_epoch(epoch):
                raise StaleEpochError(
                    f"epoch {epoch} is not the newest this backend has seen: another control plane leads now"
                )
            yield


def _refuse(attempt: Path, lives: Iterable[TaskLife], reason: str) -> None:
    for life in lives:
        if not was_started(life.folder):
            folder = make_life_folder(attempt, life.task, life.accepted.growth)
            record_lost(folder, reason, life.accepted.at)
