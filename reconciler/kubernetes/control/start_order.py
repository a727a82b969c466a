"""Which starts and promises of a plan are made true at once: those that are right beside those before them.

What does not go with pods that the same round puts on nodes waits until they are there; the next round goes by them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from reconciler.kubernetes.binder.journal import GangBinding
from reconciler.kubernetes.control.sight import Sight
from reconciler.kubernetes.objects.jobs import PodGang
from reconciler.kubernetes.objects.start_sequence import Clash, PlannedPods, StartSequence
from reconciler.model.clock import Clock
from solver.model.cluster import NodeName
from solver.model.workload import JobName, TaskPlacement
from solver.plan.plan import Evict, Nominate, Step

PATIENCE_S: Final = 600.0
"""So long a gang waits for others that go first and are not bound, as where their volumes are being made. Then it goes first."""

Note = Callable[[str, JobName, str], object]
"""Is told what has happened to a job, and why."""


class Sequences(Protocol):
    """Where gangs are put on nodes on trial."""

    def start_sequence(self) -> AbstractContextManager[StartSequence]:
        """One trial."""


class OrderedStarts(NamedTuple):
    """`starts`: the gangs that can be bound beside each other. `unpromised`: gangs to which nothing is promised yet."""

    starts: tuple[GangBinding, ...]
    unpromised: frozenset[JobName]


@dataclass
class StartOrder:
    """`postponed`: the gangs that wait for others of the same round, as of the last pass, and why."""

    world: Sequences
    note: Note
    clock: Clock
    postponed: Mapping[JobName, str] = field(default_factory=dict)
    _since_s: dict[JobName, float] = field(default_factory=dict)

    def settled(self, steps: Sequence[Step], wanted: Sequence[GangBinding], sight: Sight) -> OrderedStarts:
        """What of a plan is made true now. `wanted`: the gangs that it starts, or grows, in its order."""
        with self.world.start_sequence() as sequence:
            for coming in _in_flight(sight, "start", "grow"):
                sequence.put(coming)
            late = sorted(wanted, key=lambda gang: not self._is_late(gang.job))
            planned = (PlannedPods(gang.job, {pod.key: pod.node for pod in gang.pods}) for gang in late)
            clashes = dict(_in_turn(sequence, planned))
            for promised in _in_flight(sight, "nominate"):
                sequence.put(promised)
            promises = [step for step in steps if isinstance(step, Nominate) and step.job in sight.gangs]
            unpromised = {
                job for job, _ in _in_turn(sequence, (_planned(sight.gangs[one.job], one.tasks) for one in promises))
            }
        self._remember(clashes.values())
        # A job that moves for another stays where it is, if it can't go where it was to go on: that one gets nothing either.
        leaving = (
            step for step in steps if isinstance(step, Evict) and step.means == "move" and step.job in unpromised
        )
        unpromised |= {step.beneficiary for step in leaving if step.beneficiary}
        return OrderedStarts(tuple(gang for gang in wanted if gang.job not in clashes), frozenset(unpromised))

    def _is_late(self, job: JobName) -> bool:
        since_s = self._since_s.get(job)
        return since_s is not None and self.clock.monotonic_s() - since_s >= PATIENCE_S

    def _remember(self, clashes: Iterable[Clash]) -> None:
        before, now_s = self.postponed, self.clock.monotonic_s()
        self.postponed = {clash.job: clash.why for clash in clashes}
        self._since_s = {job: self._since_s.get(job, now_s) for job in self.postponed}
        for job, why in self.postponed.items():
            if before.get(job) != why:
                self.note("start-postponed", job, why)


def _in_turn(sequence: StartSequence, planned: Iterable[PlannedPods]) -> Iterator[tuple[JobName, Clash]]:
    """Those that do not go with what is there before them; the others are there for what comes after."""
    for one in planned:
        clash = sequence.clash(one)
        if clash is None:
            sequence.put(one)
        else:
            yield one.job, clash


def _in_flight(sight: Sight, *kinds: str) -> Iterator[PlannedPods]:
    """Pods that have no node yet, and where earlier rounds want them."""
    for intent in sight.intents:
        if intent.kind in kinds and intent.job in sight.gangs:
            gang = sight.gangs[intent.job]
            there = gang.job.placement if gang.job else ()
            holding = {(task.group, task.index) for task in there} if intent.kind != "nominate" else set()
            tasks = tuple(task for task in intent.tasks if (task.group, task.index) not in holding)
            if tasks:
                yield _planned(gang, tasks)


def _planned(gang: PodGang, tasks: Iterable[TaskPlacement]) -> PlannedPods:
    keys = {(one.group, one.task_index): (one.namespace, one.name) for one in gang.members}
    nodes: dict[tuple[str, str], NodeName] = {
        keys[task.group, task.index]: task.node for task in tasks if (task.group, task.index) in keys
    }
    return PlannedPods(gang.name, nodes)
