"""The simulated world itself: nodes, their GPUs, tasks and what they are told and say. It outlives every crash of a control plane.

Nothing here knows of leaders, messages or crashes; see SimulatedBackend for what may befall an order on its way.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

import msgspec

from reconciler.backends.simulated.behaviour import KIND, Behaviour, BehaviourOf, Faults, by_command
from reconciler.backends.simulated.journal import Entry, SimulatedJournal
from reconciler.model.clock import Clock
from reconciler.protocols.backend import (
    Activity,
    AttemptStopped,
    GpuPartitioned,
    GrowGang,
    MemoryUse,
    Order,
    PartitionGpu,
    Progress,
    StartGang,
    StopGang,
    StopTasks,
    TaskLeft,
    TaskState,
    TaskStatus,
    TellGang,
    look_every,
)
from solver.model.cluster import DeviceId, Gpu, MigInstance, Node, NodeName
from solver.model.document import Document
from solver.model.quantities import Duration, Instant, Memory
from solver.model.workload import JobName, TaskPlacement

RETRY_PAUSE_MS = 1_000
"""A task of a node that is down begins once the node is up again, and a GPU is partitioned then, looked at this often."""

_FIGURES_EVERY = Duration(1_000)

OUT_OF_MEMORY_CODE = 137
"""As after SIGKILL."""

_Instances = tuple[MigInstance, ...]


class Interval(Document, frozen=True):
    """One task really ran on these devices in this span; `end` is None while it runs. `growth` with which it came."""

    job: JobName
    attempt: int
    group: str
    index: int
    node: NodeName
    devices: tuple[DeviceId, ...]
    begin: Instant
    end: Instant | None = None
    state: TaskState = "running"
    exit_code: int | None = None
    growth: int = 0


_TaskKey = tuple[str, int]
"""Group and index."""


@dataclass
class _Attempt:
    halted: bool = False
    running: set[int] = field(default_factory=set)
    """Indices into `intervals`."""
    came: dict[_TaskKey, int] = field(default_factory=dict)
    left: dict[_TaskKey, int] = field(default_factory=dict)
    """The newest growth with which each task was ordered, and up to which it was told to leave."""


class SimulatedCluster:
    """Applies orders after random delays and in any order, and keeps a log of what really ran where.

    What it has before it is data, so that `pickle` can put a cluster by, and it goes on from there as it would have.
    """

    def __init__(
        self,
        nodes: Iterable[Node],
        clock: Clock,
        chance: random.Random,
        faults: Faults = KIND,
        behaviour: BehaviourOf = by_command,
    ) -> None:
        self.clock = clock
        self.chance = chance
        self.faults = faults
        self.journal = SimulatedJournal()
        self.intervals: list[Interval] = []
        self.gpus = SimulatedGpus(self)
        self.tells = SimulatedTells(self)
        self._figures = SimulatedFigures(self)
        self.mishaps: list[str] = []
        """Tasks that were to begin on what was not there."""
        self.pace: dict[NodeName, float] = {}
        """What is left of the speed of nodes that are slow."""
        self._behaviour = behaviour
        self._nodes = {node.name: node for node in nodes}
        self._attempts: dict[tuple[JobName, int], _Attempt] = {}
        self._said: dict[int, TaskStatus] = {}
        self._behaviours: dict[int, Behaviour] = {}
        self._due: list[tuple[Instant, int, Callable[[Instant], None]]] = []
        self._scheduled = 0
        for node in self._nodes.values():
            self.journal.report(node, clock.now())

    def schedule(self, at: Instant, happening: Callable[[Instant], None]) -> None:
        """Let something happen at an instant; it is told which."""
        self._scheduled += 1
        heapq.heappush(self._due, (at, self._scheduled, happening))

    def next_at(self) -> Instant | None:
        """When something happens next, as far as it is known by now."""
        return self._due[0][0] if self._due else None

    def catch_up(self) -> None:
        """Let everything happen that was due by now."""
        while self._due and self._due[0][0] <= self.clock.now():
            at, _, happening = heapq.heappop(self._due)
            happening(at)

    def accept(self, order: Order, at: Instant) -> None:
        """An order has arrived; its effects follow, one task after the other, in any order."""
        attempt = self._attempts.setdefault((order.job, order.attempt), _Attempt())
        match order:
            case StartGang() | GrowGang():
                self._accept_tasks(attempt, order, at)
            case StopGang():
                self.schedule(self.soon(at), partial(self._halt, attempt, order))
            case StopTasks():
                self.schedule(self.soon(at), partial(self._leave, attempt, order))
            case TellGang():
                if attempt.came:
                    self.tells.accept(order, max(attempt.came.values()), at)

    def _accept_tasks(self, attempt: _Attempt, order: StartGang | GrowGang, at: Instant) -> None:
        for task in order.tasks:
            key, growth = (task.group, task.index), _growth_of(order)
            if attempt.came.get(key, -1) < growth:
                attempt.came[key] = growth
                self.schedule(self.soon(at), partial(self._begin, attempt, order, task))

    def fail_node(self, name: NodeName, at: Instant, lasts: Duration) -> None:
        """A machine dies at an instant, with everything on it, and is back after `lasts`."""
        self.schedule(at, partial(self._node_dies, name))
        self.schedule(at.after(lasts), partial(self._set_ready, name, True))

    def fail_task(self, job: JobName, index: int, at: Instant, exit_code: int) -> None:
        """A task of each group of a job ends by itself at an instant, if it runs then."""
        self.schedule(at, partial(self._fails, job, index, exit_code=exit_code))

    def node(self, name: NodeName) -> Node:
        """A machine as it really is."""
        return self._nodes[name]

    def put_node(self, node: Node, at: Instant) -> None:
        """A machine is not as it was before."""
        self._nodes[node.name] = node
        self.report(node, at)

    def running(self) -> Iterator[Interval]:
        """Every task that runs now."""
        for attempt in self._attempts.values():
            yield from (self.intervals[number] for number in sorted(attempt.running))

    def _begin(self, attempt: _Attempt, order: StartGang | GrowGang, task: TaskPlacement, at: Instant) -> None:
        growth = _growth_of(order)
        if attempt.halted or attempt.left.get((task.group, task.index), -1) >= growth:
            return
        if not self._nodes[task.node].ready:
            self.schedule(at.after(RETRY_PAUSE_MS), partial(self._begin, attempt, order, task))
            return
        number = len(self.intervals)
        self.intervals.append(
            Interval(order.job, order.attempt, task.group, task.index, task.node, task.devices, begin=at, growth=growth)
        )
        attempt.running.add(number)
        missing = self.gpus.missing(task)
        if missing:
            self.mishaps.append(f"{order.job}/{order.attempt} {task.group}/{task.index} began without its {missing}")
            self._end(attempt, number, "lost", at)
            return
        self.say(number, at, state="starting")
        behaviour = self._behaviours[number] = self._behaviour(order.spec, task.group)
        if order.watch is None:
            self.say(number, at, state="running")
        else:
            self._watch(attempt, number, behaviour, look_every(order.watch), at)
        if behaviour.lasts is not None:
            ended: TaskState = "failed" if behaviour.exit_code else "succeeded"
            self.schedule(
                at.after(behaviour.lasts), partial(self._end, attempt, number, ended, exit_code=behaviour.exit_code)
            )
        group = next(known for known in order.spec.task_groups if known.name == task.group)
        self._figures.begin(number, group.shape.memory, at)
        self.tells.begin(number, at)

    def _watch(self, attempt: _Attempt, number: int, behaviour: Behaviour, every: Duration, at: Instant) -> None:
        """Say what a task does, now and again until it ends."""
        if number not in attempt.running:
            return
        begin = self.intervals[number].begin
        # The first look is when it begins, which is never left out.
        if at == begin or self.chance.random() >= self.faults.unwatched:
            self.say(number, at, state="running", activity=Activity(behaviour.active_at(begin, at), at, begin))
        self.schedule(at.after(every), partial(self._watch, attempt, number, behaviour, every))

    def end(self, number: int, state: TaskState, at: Instant, exit_code: int, detail: str) -> None:
        """A task ends, if it runs still."""
        task = self.intervals[number]
        self._end(self._attempts[task.job, task.attempt], number, state, at, exit_code, detail)

    def _end(
        self,
        attempt: _Attempt,
        number: int,
        state: TaskState,
        at: Instant,
        exit_code: int | None = None,
        detail: str = "",
    ) -> None:
        if number not in attempt.running:
            return
        attempt.running.remove(number)
        self.intervals[number] = msgspec.structs.replace(
            self.intervals[number], end=at, state=state, exit_code=exit_code
        )
        self.say(number, at, state=state, exit_code=exit_code, detail=detail, activity=None)

    def _halt(self, attempt: _Attempt, order: StopGang, at: Instant) -> None:
        """From now on nothing of the attempt begins; what runs ends within its grace, and then the stop is done."""
        attempt.halted = True
        done = at
        for number in sorted(attempt.running):
            then = at.after(self.chance.randint(0, order.grace))
            done = max(done, then)
            self.schedule(then, partial(self._end, attempt, number, "stopped"))
        self.schedule(done, partial(self.report, AttemptStopped(order.job, order.attempt, done)))

    def _leave(self, attempt: _Attempt, order: StopTasks, at: Instant) -> None:
        """From now on none of these tasks begins; each that runs ends within its grace, and then has left."""
        for task in order.tasks:
            key, done = (task.group, task.index), at
            if attempt.left.get(key, -1) > order.growth:
                continue  # This order is an old one: the task has been told since.
            attempt.left[key] = order.growth
            for number in sorted(attempt.running):
                ran = self.intervals[number]
                if (ran.group, ran.index) == key and ran.growth <= order.growth:
                    done = at.after(self.chance.randint(0, order.grace))
                    self.schedule(done, partial(self._end, attempt, number, "stopped"))
            left = TaskLeft(order.job, order.attempt, task.group, task.index, order.growth, done)
            self.schedule(done, partial(self.report, left))

    def _fails(self, job: JobName, index: int, at: Instant, exit_code: int) -> None:
        for attempt in self._attempts.values():
            for number in sorted(attempt.running):
                if (self.intervals[number].job, self.intervals[number].index) == (job, index):
                    self._end(attempt, number, "failed", at, exit_code)

    def _node_dies(self, name: NodeName, at: Instant) -> None:
        self._set_ready(name, False, at)
        for attempt in self._attempts.values():
            for number in sorted(attempt.running):
                if self.intervals[number].node == name:
                    self._end(attempt, number, "lost", at)

    def _set_ready(self, name: NodeName, ready: bool, at: Instant) -> None:
        self.put_node(msgspec.structs.replace(self._nodes[name], ready=ready), at)

    def behaviour_of(self, number: int) -> Behaviour:
        """How a task behaves that has begun."""
        return self._behaviours[number]

    def say(self, number: int, now: Instant, **changes: object) -> None:
        """Report a task: as it was reported last, but for what has changed."""
        task, before = self.intervals[number], self._said.get(number)
        if before is None:
            before = TaskStatus(
                task.job, task.attempt, task.group, task.index, task.node, "starting", now, growth=task.growth
            )
        status = msgspec.structs.replace(before, **changes)
        if status.state != before.state:
            status = msgspec.structs.replace(status, at=now)
        self._said[number] = status
        self.report(status, now)

    def report(self, entry: Entry, at: Instant) -> None:
        """Something is so; readers will see it a little later."""
        self.journal.report(entry, at.after(self.chance.randint(0, self.faults.report_delay)))

    def soon(self, at: Instant) -> Instant:
        """When what is asked for at an instant takes effect."""
        return at.after(self.chance.randint(0, self.faults.effect_delay))


def _growth_of(order: StartGang | GrowGang) -> int:
    """With which growth of its attempt the tasks of an order come; the start is number 0."""
    return order.growth if isinstance(order, GrowGang) else 0


class SimulatedGpus:
    """The GPUs of one cluster. It remembers the newest order of each; an older one that comes later changes nothing."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._newest: dict[DeviceId, int] = {}

    def accept(self, order: PartitionGpu, at: Instant) -> None:
        """An order has arrived; its effect follows."""
        if order.attempt > self._newest.get(order.device, 0):
            self._newest[order.device] = order.attempt
            self._cluster.schedule(self._cluster.soon(at), partial(self._clear, order))

    def missing(self, task: TaskPlacement) -> str:
        """What a task would begin on and is not there, in words; "": all is."""
        gpus = {gpu.id: gpu for gpu in self._cluster.node(task.node).gpus}
        if task.mig is not None:
            for slot in task.slots:
                gpu = gpus.get(slot.gpu)
                if gpu is None or slot.instance not in (gpu.instances or ()):
                    return f"instance {slot.instance.id_on(slot.gpu)}"
            return ""
        partitioned = [device for device in task.devices if device in gpus and gpus[device].instances is not None]
        return f"whole GPU {partitioned[0]}" if partitioned else ""

    def _clear(self, order: PartitionGpu, at: Instant) -> None:
        """The first stroke: what is not to stay goes, unless a task is on it."""
        if self._is_old(order):
            return
        if not self._cluster.node(order.node).ready:
            self._cluster.schedule(at.after(RETRY_PAUSE_MS), partial(self._clear, order))
            return
        gpu = self._gpu(order)
        if any(self._in_the_way(order)):
            self._done(order, gpu.instances, at, "a task uses what would go")
            return
        if gpu.instances != order.instances:
            wanted = order.instances or ()
            self._put(order, tuple(one for one in gpu.instances or () if one in wanted), at)
        self._cluster.schedule(self._cluster.soon(at), partial(self._fill, order))

    def _fill(self, order: PartitionGpu, at: Instant) -> None:
        """The second stroke: what is to come is made, or the GPU is whole."""
        if self._is_old(order):
            return
        if self._cluster.chance.random() < self._cluster.faults.unpartitioned:
            self._done(order, self._gpu(order).instances, at, "the simulated driver gave up")
            return
        self._put(order, order.instances, at)
        self._done(order, order.instances, at)

    def _is_old(self, order: PartitionGpu) -> bool:
        return order.attempt < self._newest[order.device]

    def _in_the_way(self, order: PartitionGpu) -> Iterator[DeviceId]:
        stays = {one.id_on(order.device) for one in order.instances or ()}
        for task in self._cluster.running():
            if order.device in task.devices:
                yield order.device
            yield from (used for used in task.devices if used.startswith(f"{order.device}/") and used not in stays)

    def _gpu(self, order: PartitionGpu) -> Gpu:
        return next(gpu for gpu in self._cluster.node(order.node).gpus if gpu.id == order.device)

    def _put(self, order: PartitionGpu, instances: _Instances | None, at: Instant) -> None:
        node = self._cluster.node(order.node)
        changed = msgspec.structs.replace(self._gpu(order), instances=instances)
        gpus = tuple(changed if gpu.id == order.device else gpu for gpu in node.gpus)
        self._cluster.put_node(msgspec.structs.replace(node, gpus=gpus), at)

    def _done(self, order: PartitionGpu, instances: _Instances | None, at: Instant, refused: str = "") -> None:
        self._cluster.report(GpuPartitioned(order.device, order.attempt, at, instances, refused), at)


class Telling(Document, frozen=True):
    """One life of a task, which came with `growth`, was told `number`; or had saved its work because of it."""

    job: JobName
    attempt: int
    group: str
    index: int
    growth: int
    number: int
    at: Instant


class SimulatedTells:
    """What the gangs of one cluster were told. It remembers all of it; an order that is older than the newest changes nothing."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.heard: list[Telling] = []
        self.saved: list[Telling] = []
        """By tasks with a behaviour that `saves`, at the end of the saving."""
        self._cluster = cluster
        self._orders: dict[tuple[JobName, int], list[tuple[TellGang, int]]] = {}
        self._told: dict[int, int] = {}

    def accept(self, order: TellGang, growth: int, at: Instant) -> None:
        """An order has come to an attempt that had grown so often by then; its effect follows."""
        known = self._orders.setdefault((order.job, order.attempt), [])
        if known and known[-1][0].number >= order.number:
            return
        known.append((order, growth))
        for number, task in enumerate(self._cluster.intervals):
            if (task.job, task.attempt) == (order.job, order.attempt):
                then = self._cluster.soon(at)
                self._cluster.schedule(then, partial(self._tell, number, order))

    def begin(self, number: int, at: Instant) -> None:
        """A task begins late, and is told what came for it before."""
        task = self._cluster.intervals[number]
        for order, growth in self._orders.get((task.job, task.attempt), []):
            if task.growth <= growth:
                self._tell(number, order, at)

    def _tell(self, number: int, order: TellGang, at: Instant) -> None:
        task = self._cluster.intervals[number]
        if task.end is not None or self._told.get(number, 0) >= order.number:
            return
        self._told[number] = order.number
        telling = Telling(task.job, task.attempt, task.group, task.index, task.growth, order.number, at)
        self.heard.append(telling)
        self._cluster.say(number, at, told=order.number)
        saves = self._cluster.behaviour_of(number).saves
        if saves is not None and order.reason != "dump":
            self._cluster.schedule(at.after(saves), partial(self._has_saved, number, telling))

    def _has_saved(self, number: int, telling: Telling, at: Instant) -> None:
        """It goes on afterwards; one that has ended meanwhile has saved nothing."""
        if self._cluster.intervals[number].end is None:
            self.saved.append(msgspec.structs.replace(telling, at=at))


class SimulatedFigures:
    """Progress and memory of the tasks of one cluster, as their behaviours say."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster

    def begin(self, number: int, limit: Memory, at: Instant) -> None:
        """A task begins that asks for so much memory."""
        behaviour = self._cluster.behaviour_of(number)
        if behaviour.memory:
            self._cluster.schedule(at.after(_FIGURES_EVERY), partial(self._measure, number, limit))
        if behaviour.rate:
            self._cluster.schedule(at.after(_FIGURES_EVERY), partial(self._count, number))

    def _measure(self, number: int, limit: Memory, at: Instant) -> None:
        if self._cluster.intervals[number].end is not None:
            return
        peak = self._cluster.behaviour_of(number).memory
        exceeded = 0 < limit < peak
        self._cluster.say(number, at, memory=MemoryUse(peak, limit, exceeded))
        if exceeded:
            detail = f"used {peak} of {limit} memory, and was ended for it"
            self._cluster.end(number, "failed", at, OUT_OF_MEMORY_CODE, detail)

    def _count(self, number: int, at: Instant) -> None:
        task = self._cluster.intervals[number]
        if task.end is not None:
            return
        behaviour = self._cluster.behaviour_of(number)
        rate = behaviour.rate * self._cluster.pace.get(task.node, 1.0)
        if behaviour.hangs is not None and at - task.begin > behaviour.hangs:
            return
        self._cluster.say(number, at, progress=Progress(int(rate * Duration(at - task.begin).seconds), rate, at))
        self._cluster.schedule(at.after(_FIGURES_EVERY), partial(self._count, number))
