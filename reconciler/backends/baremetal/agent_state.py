"""What the agent of one node told last, and how long it has not been heard of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from reconciler.model.facts import NodeFacts
from reconciler.protocols.backend import (
    ENDED,
    AttemptKey,
    AttemptStopped,
    BackendChanges,
    GpuPartitioned,
    TaskLeft,
    TaskStatus,
)
from solver.model.cluster import DeviceId, Node, NodeName
from solver.model.quantities import Instant
from solver.model.workload import JobName

TaskKey = tuple[JobName, int, str, int]
"""Job, attempt, group, index."""


@dataclass
class AgentState:
    """Everything an agent said, the latest of each thing."""

    nodes: dict[NodeName, Node] = field(default_factory=dict)
    tasks: dict[TaskKey, TaskStatus] = field(default_factory=dict)
    stopped: dict[AttemptKey, AttemptStopped] = field(default_factory=dict)
    left: dict[TaskKey, TaskLeft] = field(default_factory=dict)
    partitioned: dict[DeviceId, GpuPartitioned] = field(default_factory=dict)
    facts: dict[NodeName, NodeFacts] = field(default_factory=dict)

    def add(self, changes: BackendChanges) -> None:
        """What changed since."""
        self.nodes |= {node.name: node for node in changes.nodes}
        self.tasks |= {key_of(task): task for task in changes.tasks}
        self.stopped |= {(done.job, done.attempt): done for done in changes.stopped}
        self.left |= {key_of(gone): gone for gone in changes.left}
        self.partitioned |= {done.device: done for done in changes.partitioned}
        self.facts |= {facts.node: facts for facts in changes.facts}

    def drop(self, job: JobName, attempt: int) -> None:
        """The agent has forgotten this attempt."""
        self.stopped.pop((job, attempt), None)
        for parts in (self.tasks, self.left):
            for key in [key for key in parts if key[:2] == (job, attempt)]:
                del parts[key]

    @property
    def attempts(self) -> Iterator[AttemptKey]:
        """Every attempt that it knows something of; some more than once."""
        yield from self.stopped
        yield from (key[:2] for key in (*self.tasks, *self.left))

    @property
    def live(self) -> Iterator[TaskStatus]:
        """The tasks that run, or will."""
        return (task for task in self.tasks.values() if task.state not in ENDED)


@dataclass
class Heard:
    """How one node stands with the listener.

    `last_s` and `at`: when it was heard of last (when listening began, if never), by the listener's own count of seconds and by
    the wall clock. `whole_at`: when it told everything since it connected last; None: not yet.
    """

    last_s: float
    at: Instant
    told: AgentState = field(default_factory=AgentState)
    connected: bool = False
    whole_at: Instant | None = None
    address: str = ""

    @property
    def whole(self) -> bool:
        """What it has not told of is not there."""
        return self.whole_at is not None


def of_itself(node: NodeName, changes: BackendChanges) -> BackendChanges:
    """What an agent says of its own node: a node that was taken over can't speak for another."""
    return msgspec.structs.replace(
        changes,
        nodes=tuple(known for known in changes.nodes if known.name == node),
        tasks=tuple(task for task in changes.tasks if task.node == node),
        partitioned=tuple(done for done in changes.partitioned if done.device.startswith(f"{node}/")),
        facts=tuple(facts for facts in changes.facts if facts.node == node),
    )


def key_of(seen: TaskStatus | TaskLeft) -> TaskKey:
    """Which task it is about."""
    return seen.job, seen.attempt, seen.group, seen.index
