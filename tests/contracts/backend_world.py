"""What the backend suite needs of an implementation, and how the suite watches it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from reconciler.protocols.backend import (
    ENDED,
    Activity,
    AttemptStopped,
    Backend,
    BackendChanges,
    BackendUnreachableError,
    Cursor,
    Epoch,
    GpuPartitioned,
    GrowGang,
    Order,
    PartitionGpu,
    StartGang,
    StopGang,
    StopTasks,
    TaskLeft,
    TaskStatus,
    TellGang,
    TellReason,
)
from solver.model.cluster import DeviceId, MigInstance, Node, NodeName
from solver.model.quantities import Duration, Instant, MilliGpu
from solver.model.shape import Shape
from solver.model.workload import JobName, JobSpec, MigSlot, QueueName, TaskGroup, TaskPlacement

SETTLES_MAX = 1_500
"""How often `settle` is called before the suite gives up: 30 s for a world whose `settle` sleeps 20 ms."""

UNTIL = Instant.parse("2027-01-01T00:00:00Z")

Command = tuple[str, ...]
Place = tuple[int, tuple[int, ...]]
"""The index of a node and the indices of its GPUs."""


class BackendWorld(Protocol):
    """One backend with two nodes of at least two GPUs each, and commands it can run.

    Register an implementation in tests/contracts/conftest.py.
    """

    @property
    def backend(self) -> Backend:
        """The backend under test; another object after `restart`."""

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The declared nodes, all healthy."""

    @property
    def idle_limit(self) -> Duration:
        """How long a task must do nothing before the suite believes that it is idle: many looks, and few seconds."""

    def settle(self) -> None:
        """Let a little time pass, real or virtual, so that what was ordered can make progress."""

    def restart(self) -> None:
        """Drop the backend object as a crash of the control plane would, and make a new one on the same state."""

    def succeeds(self) -> Command:
        """A command that soon ends with exit code 0."""

    def fails(self, exit_code: int) -> Command:
        """A command that soon ends with this exit code."""

    def runs(self) -> Command:
        """A command that runs until it is stopped."""

    def works(self) -> Command:
        """A command that does something all the time until it is stopped."""

    def listens(self) -> Command:
        """A command that runs until it is stopped, and counts what it is told."""

    def trains(self) -> Command:
        """A command that runs until it is stopped, and says again and again how far it is: a step further each time."""

    def hogs(self) -> Command:
        """A command that runs until it is stopped, with between 64Mi and 512Mi of memory."""

    def told(self, job: JobName, attempt: int, index: int) -> list[int]:
        """The numbers of what a worker was told, each time that it was, counted where it runs."""

    def starts(self, job: JobName, attempt: int, group: str, index: int) -> int:
        """How often this task's command really started, counted where it runs and not by the backend's books."""

    def environment(self, job: JobName, attempt: int, group: str, index: int) -> dict[str, str] | None:
        """What the running task sees as its environment; None where the backend starts nothing that has one."""


class Watcher:
    """Sends orders until they arrive, folds `changes` into a view, and fails if the reports contradict each other."""

    def __init__(self, world: BackendWorld) -> None:
        self.world = world
        self.cursor = Cursor(0)
        self.tasks: dict[tuple[JobName, int, str, int], TaskStatus] = {}
        self.stopped: dict[tuple[JobName, int], AttemptStopped] = {}
        self.left: dict[tuple[JobName, int, str, int], TaskLeft] = {}
        self.nodes: dict[str, Node] = {}
        self.partitioned: dict[DeviceId, GpuPartitioned] = {}

    def send(self, order: Order, epoch: int = 1) -> None:
        """Submit until the backend says that it took the order; a StaleEpochError is the caller's."""
        self._persist(lambda: self.world.backend.submit(order, Epoch(epoch)))

    def partition(self, order: PartitionGpu, epoch: int = 1) -> None:
        """Ask for a GPU to be partitioned until the backend says that it took the order."""
        self._persist(lambda: self.world.backend.partition(order, Epoch(epoch)))

    def forget(self, job: str, attempt: int = 1, epoch: int = 1) -> None:
        """Forget until the backend says that it did."""
        self._persist(lambda: self.world.backend.forget(JobName(job), attempt, Epoch(epoch)))

    def look(self) -> BackendChanges:
        """Fold what changed since the last look; returns it."""
        try:
            changes = self.world.backend.changes(self.cursor)
        except BackendUnreachableError:
            return BackendChanges(self.cursor)
        assert changes.cursor >= self.cursor, "a cursor went back"
        self.cursor = changes.cursor
        for status in changes.tasks:
            self._fold(status)
        self.stopped |= {(done.job, done.attempt): done for done in changes.stopped}
        for gone in changes.left:
            before = self.left.get((gone.job, gone.attempt, gone.group, gone.index))
            assert before is None or before.growth <= gone.growth, f"a leave went back: {before} -> {gone}"
            self.left[gone.job, gone.attempt, gone.group, gone.index] = gone
        self.nodes |= {node.name: node for node in changes.nodes}
        for done in changes.partitioned:
            known = self.partitioned.get(done.device)
            assert known is None or known.attempt <= done.attempt, f"a partitioning went back: {known} -> {done}"
            self.partitioned[done.device] = done
        return changes

    def until(self, reached: Callable[[], bool]) -> None:
        """Look until something is so; fails after SETTLES_MAX."""
        for _ in range(SETTLES_MAX):
            self.look()
            if reached():
                return
            self.world.settle()
        raise AssertionError(f"never came about; last seen: {self.tasks} {self.stopped}")

    def until_quiet(self) -> None:
        """Look until ten looks in a row bring nothing new."""
        quiet = 0
        for _ in range(SETTLES_MAX):
            changes = self.look()
            news = changes.tasks or changes.stopped or changes.left or changes.nodes or changes.partitioned
            quiet = 0 if news else quiet + 1
            if quiet == 10:
                return
            self.world.settle()
        raise AssertionError("never came to rest")

    def instances(self, gpu: DeviceId) -> tuple[MigInstance, ...] | None:
        """What a GPU is reported to be partitioned into."""
        return next(known.instances for node in self.nodes.values() for known in node.gpus if known.id == gpu)

    def states(self, job: str, attempt: int = 1) -> list[str]:
        """The states of an attempt's tasks, in order of group and index."""
        return [self.tasks[key].state for key in sorted(self.tasks) if key[:2] == (job, attempt)]

    def activity(self, job: str, index: int = 0) -> Activity:
        """What is reported of what a worker does."""
        activity = self.tasks[JobName(job), 1, "worker", index].activity
        assert activity is not None, f"nothing is said of {job}"
        return activity

    def told(self, job: str, attempt: int = 1) -> list[int]:
        """What number each worker of an attempt was told last."""
        return [self.tasks[key].told for key in sorted(self.tasks) if key[:2] == (job, attempt)]

    def is_stopped(self, job: str, attempt: int = 1) -> bool:
        """The stop order of this attempt is done."""
        return (JobName(job), attempt) in self.stopped

    def has_left(self, job: str, index: int, growth: int = 0) -> bool:
        """This worker, whatever it came with up to a growth, was told to leave and has."""
        gone = self.left.get((JobName(job), 1, "worker", index))
        return gone is not None and gone.growth >= growth

    def _fold(self, status: TaskStatus) -> None:
        key = (status.job, status.attempt, status.group, status.index)
        before = self.tasks.get(key)
        if before is not None and before.growth != status.growth:
            assert status.growth > before.growth, f"a former life came back: {before} -> {status}"
            assert before.state in ENDED, f"it lives twice: {before} -> {status}"
            before = None
        if before is not None and before.state in ENDED:
            assert status.state == before.state, f"an ended task changed: {before} -> {status}"
        if before is not None and before.state == "running":
            assert status.state != "starting", f"a running task went back: {before} -> {status}"
        if before is not None and before.activity is not None and status.activity is not None:
            assert before.activity.seen_at <= status.activity.seen_at, f"a look went back: {before} -> {status}"
        if before is not None:
            assert before.told <= status.told, f"what was told was forgotten: {before} -> {status}"
        self.tasks[key] = status

    def _persist(self, call: Callable[[], None]) -> None:
        for _ in range(SETTLES_MAX):
            try:
                return call()
            except BackendUnreachableError:
                self.world.settle()
        raise AssertionError("the backend was never reachable")


def start(world: BackendWorld, job: str, command: Command, *places: Place, attempt: int = 1) -> StartGang:
    """An order for a gang of one group `worker` with one task per place."""
    shape = Shape(gpus=len(places[0][1]))
    spec = JobSpec(QueueName("q"), (TaskGroup("worker", len(places), shape),), command=command)
    tasks = tuple(
        TaskPlacement("worker", index, world.nodes[node].name, tuple(world.nodes[node].gpus[gpu].id for gpu in gpus))
        for index, (node, gpus) in enumerate(places)
    )
    return StartGang(JobName(job), attempt, tasks, spec)


def stop(job: str, attempt: int = 1, grace_ms: int = 1_000) -> StopGang:
    """An order that ends one attempt."""
    return StopGang(JobName(job), attempt, Duration(grace_ms))


def tell(
    job: str, number: int, attempt: int = 1, reason: TellReason = "checkpoint", signal: str = "SIGUSR1"
) -> TellGang:
    """An order that the tasks of an attempt be told something."""
    return TellGang(JobName(job), attempt, number, reason, UNTIL, signal)


def grow(world: BackendWorld, started: StartGang, growth: int, *joining: tuple[int, Place]) -> GrowGang:
    """An order by which more workers, each with its index, join a gang."""
    tasks = tuple(
        TaskPlacement("worker", index, world.nodes[node].name, tuple(world.nodes[node].gpus[gpu].id for gpu in gpus))
        for index, (node, gpus) in joining
    )
    return GrowGang(started.job, started.attempt, growth, tasks, started.tasks, started.spec)


def stop_workers(job: str, *indices: int, growth: int = 0, grace_ms: int = 1_000) -> StopTasks:
    """An order by which some workers leave."""
    tasks = tuple(TaskPlacement("worker", index, NodeName("wherever")) for index in indices)
    return StopTasks(JobName(job), 1, growth, tasks, Duration(grace_ms))


def partition(world: BackendWorld, gpu: int, attempt: int, *instances: str) -> PartitionGpu:
    """An order that a GPU of the first node has these instances, each as PROFILE@START."""
    node = world.nodes[0]
    return PartitionGpu(node.name, node.gpus[gpu].id, attempt, tuple(map(instance, instances)))


def instance(written: str) -> MigInstance:
    """PROFILE@START."""
    profile, _, start = written.partition("@")
    return MigInstance(profile, int(start))


def start_on(world: BackendWorld, job: str, command: Command, gpu: int, *instances: str) -> StartGang:
    """An order for a gang with one task per instance of a GPU of the first node."""
    node = world.nodes[0]
    placed = [MigSlot(node.gpus[gpu].id, instance(written), MilliGpu(125)) for written in instances]
    spec = JobSpec(QueueName("q"), (TaskGroup("worker", len(placed), Shape(mig="1g.10gb")),), command=command)
    tasks = tuple(
        TaskPlacement("worker", index, node.name, (slot.instance.id_on(slot.gpu),), mig=slot)
        for index, slot in enumerate(placed)
    )
    return StartGang(JobName(job), 1, tasks, spec)


def let_another_job_run(world: BackendWorld, watcher: Watcher, epoch: int = 1) -> None:
    """Whatever was ordered before this has had its time once a job ordered after it has come and gone."""
    watcher.send(start(world, "another", world.succeeds(), (1, (1,))), epoch)
    watcher.until(lambda: watcher.states("another") == ["succeeded"])
    watcher.until_quiet()
