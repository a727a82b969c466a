"""What agents told, each of its own node, as one look at the cluster: pure.

A status counts as the node told it last. That an attempt is stopped, or a task has left, counts once every node says so that may
have something of it: those of the claim in the ledger, and those that told of its tasks. So nothing is remembered here that a
restart would lose.

A node that is not heard of for `lease_s` is not ready, and that is all: what ran there is believed to run. After `lost_after_s`
its tasks are lost, and its word is not waited for any more: the gang may begin again elsewhere. The node gets nothing to do
before its agent is back and says that nothing runs there but what the ledger knows.

A task of a gang that runs is lost, too, where its agent is there, has told everything, and does not know of it, or not that it has
begun: the node was set up anew, or has an older disk. Nothing else would ever say how it ended.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from reconciler.backends.baremetal.agent_state import Heard, TaskKey, key_of
from reconciler.protocols.backend import ENDED, AttemptKey, AttemptStopped, BackendChanges, Cursor, TaskLeft, TaskStatus
from reconciler.protocols.ledger import Claim
from solver.model.cluster import Node, NodeName
from solver.model.quantities import Duration, Instant
from solver.model.workload import TaskPlacement

LEASE: Final = Duration(20_000)
"""Four beats of an agent."""

LOST_AFTER: Final = Duration(300_000)
"""As long as Kubernetes waits before it evicts the pods of a node that it can't reach (default tolerationSeconds)."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a node may be silent: `lease` before it is not ready, `lost_after` before its tasks are given up."""

    lease: Duration = LEASE
    lost_after: Duration = LOST_AFTER


@dataclass(frozen=True, slots=True)
class Stray:
    """Something runs on a node that the ledger does not have there."""

    node: NodeName
    status: TaskStatus
    claimed: bool
    """The attempt is in the ledger all the same: this task of it has left, or is elsewhere."""


class FleetView:
    """All nodes at one moment, `now_s` by the count of the listener."""

    def __init__(
        self,
        nodes: Mapping[NodeName, Heard],
        claims: Iterable[Claim],
        now_s: float,
        patience: Patience,
        joining: Callable[[], Collection[TaskKey]] = frozenset,
    ) -> None:
        """`joining`: tasks that are to join a gang that runs: their agents may not know of them yet. Asked if it matters."""
        self._nodes = nodes
        self._patience = patience
        self._joining = joining
        self._silent = {name: (now_s - heard.last_s) * 1_000 for name, heard in nodes.items()}
        self._claims: dict[AttemptKey, Claim] = {(claim.job, claim.attempt): claim for claim in claims}
        self._places: dict[TaskKey, NodeName] = {
            (*attempt, task.group, task.index): task.node
            for attempt, claim in self._claims.items()
            for task in claim.tasks
        }
        # The nodes that are asked about each attempt and task: the ledger's, and those that told of a task.
        self._of_attempts: defaultdict[AttemptKey, set[NodeName]] = defaultdict(set)
        self._of_tasks: defaultdict[TaskKey, set[NodeName]] = defaultdict(set)
        for key, node in (*self._places.items(), *self._told_of()):
            self._of_attempts[key[:2]].add(node)
            self._of_tasks[key].add(node)

    def changes(self) -> BackendChanges:
        """Everything that is known, without a cursor."""
        partitioned = (done for heard in self._nodes.values() for done in heard.told.partitioned.values())
        return BackendChanges(
            Cursor(0),
            nodes=tuple(
                self._node(name, node) for name, heard in self._nodes.items() for node in heard.told.nodes.values()
            ),
            tasks=tuple(self._tasks().values()),
            stopped=tuple(self._stopped()),
            left=tuple(self._left()),
            partitioned=tuple(partitioned),
            facts=tuple(facts for heard in self._nodes.values() for facts in heard.told.facts.values()),
        )

    def strays(self) -> Iterator[Stray]:
        """What is to be stopped before its node is ready again."""
        for name, heard in self._nodes.items():
            for status in heard.told.live:
                if self._places.get(key_of(status)) != name:
                    yield Stray(name, status, (status.job, status.attempt) in self._claims)

    def _told_of(self) -> Iterator[tuple[TaskKey, NodeName]]:
        return ((key, name) for name, heard in self._nodes.items() for key in heard.told.tasks)

    def _node(self, name: NodeName, node: Node) -> Node:
        heard = self._nodes[name]
        in_time = heard.whole and self._silent[name] < min(self._patience.lease, self._patience.lost_after)
        clean = all(self._places.get(key_of(status)) == name for status in heard.told.live)
        return msgspec.structs.replace(node, ready=node.ready and in_time and clean)

    def _is_lost(self, name: NodeName) -> bool:
        return self._silent.get(name, 0) >= self._patience.lost_after

    def _heard_of(self, names: Iterable[NodeName]) -> list[NodeName]:
        """Those that can be waited for."""
        return [name for name in names if not self._is_lost(name)]

    def _matters(self, name: NodeName, attempt: AttemptKey) -> bool:
        """What a node that is gone told of an attempt that no job claims is of no use: it can't be told to forget it."""
        return self._nodes[name].connected or attempt in self._claims

    def _tasks(self) -> dict[TaskKey, TaskStatus]:
        """How each task stands: as the node tells where the ledger has it, or else where it came last."""
        found: dict[TaskKey, TaskStatus] = {}
        for name, heard in self._nodes.items():
            for key, told in heard.told.tasks.items():
                known, is_there = found.get(key), self._places.get(key, name) == name
                if is_there and self._matters(name, key[:2]) and (known is None or known.growth < told.growth):
                    found[key] = self._given_up(name, told) if told.state not in ENDED else told
        unknown: dict[TaskKey, TaskStatus] = {}
        for claim in self._claims.values():
            for task in claim.tasks:
                key, heard = (claim.job, claim.attempt, task.group, task.index), self._nodes[task.node]
                if key in found and found[key].state != "starting":
                    continue
                if self._is_lost(task.node):
                    found.setdefault(key, self._given_up(task.node, _unheard(claim, task, heard)))
                elif claim.running_since is not None and heard.connected and heard.whole_at is not None:
                    unknown[key] = _forgotten(_unheard(claim, task, heard), max(claim.running_since, heard.whole_at))
        joining = self._joining() if unknown else ()
        return found | {key: status for key, status in unknown.items() if key not in joining}

    def _given_up(self, name: NodeName, status: TaskStatus) -> TaskStatus:
        if not self._is_lost(name):
            return status
        at = self._nodes[name].at
        detail = f"nothing has been heard of its node since {at}"
        return msgspec.structs.replace(status, state="lost", at=at.after(self._patience.lost_after), detail=detail)

    def _stopped(self) -> Iterator[AttemptStopped]:
        said: defaultdict[AttemptKey, dict[NodeName, AttemptStopped]] = defaultdict(dict)
        for name, heard in self._nodes.items():
            for key, done in heard.told.stopped.items():
                if self._matters(name, key):
                    said[key][name] = done
        for key in sorted(said.keys() | self._claims.keys()):
            asked = self._of_attempts[key]
            if not all(name in said[key] for name in self._heard_of(asked)):
                continue
            # Of a gang with all nodes given up, none is left to say it.
            ends = [done.at for done in said[key].values()] or [self._lost_at(name) for name in asked]
            if ends:
                yield AttemptStopped(*key, max(ends))

    def _left(self) -> Iterator[TaskLeft]:
        said: defaultdict[TaskKey, dict[NodeName, TaskLeft]] = defaultdict(dict)
        for name, heard in self._nodes.items():
            for key, gone in heard.told.left.items():
                if self._matters(name, key[:2]):
                    said[key][name] = gone
        for key, by_node in sorted(said.items()):
            asked = self._heard_of(self._of_tasks[key])
            if all(name in by_node for name in asked):
                yield min((by_node[name] for name in asked or by_node), key=lambda gone: gone.growth)

    def _lost_at(self, name: NodeName) -> Instant:
        return self._nodes[name].at.after(self._patience.lost_after)


def _forgotten(status: TaskStatus, at: Instant) -> TaskStatus:
    detail = "the agent of its node does not know of it: the node was set up anew, or its state folder is an older one"
    return msgspec.structs.replace(status, state="lost", at=at, detail=detail)


def _unheard(claim: Claim, task: TaskPlacement, heard: Heard) -> TaskStatus:
    """A task that no node has told of."""
    return TaskStatus(
        claim.job, claim.attempt, task.group, task.index, task.node, "starting", heard.at, growth=claim.growth
    )
