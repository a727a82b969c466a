"""The simulated world itself: nodes, tasks, and what befalls them. It outlives every crash of a control plane."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

from reconciler.backends.looks import look_every
from reconciler.backends.simulated.behaviour import Behaviour, BehaviourOf, by_command
from reconciler.backends.simulated.faults import KIND, Faults
from reconciler.backends.simulated.figures import SimulatedFigures
from reconciler.backends.simulated.gpus import SimulatedGpus
from reconciler.backends.simulated.journal import Entry, SimulatedJournal
from reconciler.backends.simulated.tells import SimulatedTells
from reconciler.model.clock import Clock
from reconciler.protocols.backend import (
    Activity,
    AttemptStopped,
    GrowGang,
    Order,
    StartGang,
    StopGang,
    StopTasks,
    TaskLeft,
    TaskState,
    TaskStatus,
    TellGang,
)
from solver.model.cluster import DeviceId, Node, NodeName
from solver.model.document import Document
from solver.model.quantities import Duration, Instant
from solver.model.workload import JobName, TaskPlacement

RETRY_PAUSE_MS = 1_000
"""A task whose node is down begins once the node is up again, looked at this often."""


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

    Nothing here knows of leaders, messages or crashes; see SimulatedBackend for what may befall an order on its way.
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
                self.schedule(self.soon(at), lambda then: self._halt(attempt, order, then))
            case StopTasks():
                self.schedule(self.soon(at), lambda then: self._leave(attempt, order, then))
            case TellGang():
                if attempt.came:
                    self.tells.accept(order, max(attempt.came.values()), at)

    def _accept_tasks(self, attempt: _Attempt, order: StartGang | GrowGang, at: Instant) -> None:
        for task in order.tasks:
            key, growth = (task.group, task.index), _growth_of(order)
            if attempt.came.get(key, -1) < growth:
                attempt.came[key] = growth
                self.schedule(self.soon(at), lambda then, task=task: self._begin(attempt, order, task, then))  # type: ignore[misc]

    def fail_node(self, name: NodeName, at: Instant, lasts: Duration) -> None:
        """A machine dies at an instant, with everything on it, and is back after `lasts`."""
        self.schedule(at, lambda then: self._node_dies(name, then))
        self.schedule(at.after(lasts), lambda then: self._set_ready(name, True, then))

    def fail_task(self, job: JobName, index: int, at: Instant, exit_code: int) -> None:
        """A task of each group of a job ends by itself at an instant, if it runs then."""
        self.schedule(at, lambda then: self._fails(job, index, then, exit_code))

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
            self.schedule(at.after(RETRY_PAUSE_MS), lambda then: self._begin(attempt, order, task, then))
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
                at.after(behaviour.lasts), lambda then: self._end(attempt, number, ended, then, behaviour.exit_code)
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
            self.say(number, at, state="running", activity=Activity(behaviour.active_at(begin, at), at))
        self.schedule(at.after(every), lambda then: self._watch(attempt, number, behaviour, every, then))

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
            self.schedule(then, lambda then, number=number: self._end(attempt, number, "stopped", then))  # type: ignore[misc]
        self.schedule(done, lambda then: self.report(AttemptStopped(order.job, order.attempt, then), then))

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
                    self.schedule(done, lambda then, number=number: self._end(attempt, number, "stopped", then))  # type: ignore[misc]
            left = TaskLeft(order.job, order.attempt, task.group, task.index, order.growth, done)
            self.schedule(done, lambda then, left=left: self.report(left, then))  # type: ignore[misc]

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
